from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.action.ray_job import load_jobspec


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


def loaded(name: str, *inventories: Path | str) -> str:
    given, findings = load_jobspec(name, [str(inventory) for inventory in inventories])
    assert findings == []
    return str(given["workload"])


def test_a_jobspec_is_found_beside_the_inventory(inventory: Path) -> None:
    assert loaded("grpo.yaml", inventory) == "grpo"
    assert loaded("grpo.yaml", inventory / "hosts.yml") == "grpo"


def test_the_first_inventory_that_has_it(inventory: Path) -> None:
    other = inventory.with_name("prod")
    (other / "jobspecs").mkdir(parents=True)
    (other / "jobspecs" / "sft.yaml").write_text("workload: sft\n")
    (other / "jobspecs" / "grpo.yaml").write_text("workload: other\n")
    assert loaded("sft.yaml", inventory, other) == "sft"
    assert loaded("grpo.yaml", inventory, other) == "grpo"


def test_a_path_comes_before_the_inventory(inventory: Path) -> None:
    absolute = inventory / "jobspecs" / "grpo.yaml"
    assert loaded(str(absolute)) == "grpo"
    Path("grpo.yaml").write_text("workload: sft\n")
    assert loaded("grpo.yaml", inventory) == "sft"


def test_a_path_below_the_home(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(inventory))
    assert loaded("~/jobspecs/grpo.yaml") == "grpo"


def test_a_directory_is_no_jobspec(inventory: Path) -> None:
    Path("grpo.yaml").mkdir()
    assert loaded("grpo.yaml", inventory) == "grpo"


@pytest.mark.parametrize(
    ("name", "what", "todo"),
    [
        ("gpro.yaml", "there is no file 'gpro.yaml'", 'did you mean "grpo.yaml"?'),
        ("x", "there is no file 'x'", "the inventory has grpo.yaml; any other path will do as well"),
        ("", "no file was named", "the inventory has grpo.yaml; any other path will do as well"),
    ],
)
def test_those_that_are_there_are_named(inventory: Path, name: str, what: str, todo: str) -> None:
    given, (finding,) = load_jobspec(name, [str(inventory), "box,"])
    assert given is None
    assert (finding.where, finding.what, finding.todo) == ("jobspec", what, todo)


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
