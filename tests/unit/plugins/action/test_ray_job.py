from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.action.ray_job import find_jobspec, load_jobspec


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory as inventories/dev, and an empty one in which ansible-playbook is started."""
    made = tmp_path / "inventories" / "dev"
    (made / "jobspecs").mkdir(parents=True)
    (made / "hosts.yml").touch()
    (made / "jobspecs" / "grpo.yaml").write_text("workload: grpo\n")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return made


def test_a_jobspec_is_found_beside_the_inventory(inventory: Path) -> None:
    expected = inventory / "jobspecs" / "grpo.yaml"
    assert find_jobspec("grpo.yaml", [str(inventory)]) == expected
    assert find_jobspec("grpo.yaml", [str(inventory / "hosts.yml")]) == expected


def test_the_first_inventory_that_has_it(inventory: Path) -> None:
    other = inventory.with_name("prod")
    (other / "jobspecs").mkdir(parents=True)
    (other / "jobspecs" / "sft.yaml").touch()
    (other / "jobspecs" / "grpo.yaml").touch()
    assert find_jobspec("sft.yaml", [str(inventory), str(other)]) == other / "jobspecs" / "sft.yaml"
    assert find_jobspec("grpo.yaml", [str(inventory), str(other)]) == inventory / "jobspecs" / "grpo.yaml"


def test_a_path_comes_before_the_inventory(inventory: Path) -> None:
    Path("grpo.yaml").write_text("workload: sft\n")
    assert find_jobspec("grpo.yaml", [str(inventory)]) == Path("grpo.yaml")
    absolute = str(inventory / "jobspecs" / "grpo.yaml")
    assert find_jobspec(absolute, []) == Path(absolute)


def test_a_path_below_the_home(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(inventory))
    assert find_jobspec("~/jobspecs/grpo.yaml", []) == inventory / "jobspecs" / "grpo.yaml"


def test_a_directory_is_no_jobspec(inventory: Path) -> None:
    Path("grpo.yaml").mkdir()
    assert find_jobspec("grpo.yaml", [str(inventory)]) == inventory / "jobspecs" / "grpo.yaml"


def test_all_places_are_named(inventory: Path) -> None:
    given, findings = load_jobspec("ppo.yaml", [str(inventory), "box,"])
    assert given is None
    assert [(finding.where, finding.what, finding.todo) for finding in findings] == [
        (
            "jobspec",
            "'ppo.yaml' is not there",
            f"looked for ppo.yaml, {inventory}/jobspecs/ppo.yaml, jobspecs/ppo.yaml",
        )
    ]


def test_a_jobspec_is_loaded(inventory: Path) -> None:
    assert load_jobspec("grpo.yaml", [str(inventory)]) == ({"workload": "grpo"}, [])


@pytest.mark.parametrize(
    ("content", "piece"),
    [
        (b"workload: [grpo\n", "while parsing a flow sequence"),
        (b"workload: grpo\n\tmodel: x\n", "found character '\\t' that cannot start any token"),
        (b"workload: gr\xff\n", "'utf-8' codec can't decode byte 0xff"),
        (b"a: !!python/object/apply:os.system [date]\n", "could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_yaml(inventory: Path, content: bytes, piece: str) -> None:
    file = inventory / "jobspecs" / "bad.yaml"
    file.write_bytes(content)
    given, (finding,) = load_jobspec("bad.yaml", [str(inventory)])
    assert given is None
    assert (finding.where, finding.todo) == (str(file), "mend the file")
    assert piece in finding.what
    assert "\n" not in finding.what
