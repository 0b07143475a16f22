from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.jobspec_file import load_jobspec


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like inventories/dev, and an empty one in which ansible-playbook runs."""
    directory = tmp_path / "inventories" / "dev"
    (directory / "jobspecs").mkdir(parents=True)
    (directory / "hosts.yml").touch()
    (directory / "jobspecs" / "grpo.yaml").write_text("workload: grpo\n")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return directory


def loaded(name: str, *inventories: Path | str) -> str:
    jobspec, findings = load_jobspec(name, [str(inventory) for inventory in inventories])
    assert findings == []
    return str(jobspec["workload"])


def test_where_a_jobspec_is(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded("grpo.yaml", inventory / "hosts.yml") == "grpo"
    # The first inventory with the file counts, and a path before it.
    other = inventory.with_name("prod")
    (other / "jobspecs").mkdir(parents=True)
    for name in ("sft", "grpo"):
        (other / "jobspecs" / f"{name}.yaml").write_text(f"workload: {name}2\n")
    assert loaded("sft.yaml", inventory, other) == "sft2" and loaded("grpo.yaml", inventory, other) == "grpo"
    monkeypatch.setenv("HOME", str(inventory))
    assert loaded(str(inventory / "jobspecs" / "grpo.yaml")) == loaded("~/jobspecs/grpo.yaml") == "grpo"
    Path("grpo.yaml").mkdir()
    assert loaded("grpo.yaml", inventory) == "grpo"
    Path("sft.yaml").write_text("workload: sft\n")
    assert loaded("sft.yaml", inventory, other) == "sft"
    for name, where in (("/proc/self/mem", "/proc/self/mem"), ("none.yaml", "jobspec")):
        jobspec, (finding,) = load_jobspec(name, [])
        assert (jobspec, finding.where) == (None, where)


def test_a_jobspec_in_json(inventory: Path) -> None:
    text = '{\n\t"workload": "ppo",\n\t"trainer_overrides": {"optim.lr": 1e-06}, "submission_id": null\n}\n'
    (inventory / "jobspecs" / "ppo.json").write_text(text)
    jobspec, findings = load_jobspec("ppo.json", [str(inventory)])
    assert findings == []
    assert jobspec == {"workload": "ppo", "trainer_overrides": {"optim.lr": 1e-6}, "submission_id": None}
    (finding,) = load_jobspec("po.json", [str(inventory)])[1]
    assert finding.remedy == 'did you mean "ppo.json"?'
    (inventory / "jobspecs" / "twice.json").write_text('{"model": 1, "model": 2}')
    assert len(load_jobspec("twice.json", [str(inventory)])[1]) == 1


# The last is a JobSpec in place of its file's name.
@pytest.mark.parametrize("name", ["gpro.yaml", "", "~nobody-at-all/x", "a\0b", "{'a': '" + "x" * 5000], ids=range(5))
def test_the_files_of_the_inventory_are_named(inventory: Path, name: str) -> None:
    jobspec, (finding,) = load_jobspec(name, [str(inventory), "box,"])
    assert (jobspec, finding.where) == (None, "jobspec")
    assert "grpo.yaml" in finding.remedy
    assert finding.problem.isprintable() and len(finding.problem) < 300


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"workload: grpo\n\tmodel: x\n", 2),
        (b"workload: gr\xff\n", 0),
        (b"a: !!python/object/apply:os.system [date]\n", 1),
        (b"model: a\ntags: {a: 1}\nmodel: b\n", 3),
        (b"- " * 100_000, 0),
        (b"#" * (257 * 1024), 0),
        (b"a: 2026-99-99\n", 0),
        (b"!!int ''", 0),
        (b"{[a]: 1}", 1),
        (b"a: !" + b"b" * 200_000 + b" c", 1),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_is_not_a_jobspec(inventory: Path, content: bytes, line: int) -> None:
    file = inventory / "jobspecs" / "bad.yaml"
    file.write_bytes(content)
    started = time.monotonic()
    jobspec, (finding,) = load_jobspec("bad.yaml", [str(inventory)])
    assert time.monotonic() - started < 30
    assert jobspec is None
    assert finding.where == (f"{file}, line {line}" if line else str(file))
    assert finding.remedy and "\n" not in finding.problem and len(finding.problem) <= 300


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in pairwise("abcdefghi")), "jobspec"),
        ("".join(f"{b}: &{b} {{x: *{a}, y: *{a}, z: [*{a}]}}\n" for a, b in pairwise("abcdefghijklmnop")), "jobspec"),
        ("a: &a [*a]\n", "a.0"),
        ("a: " + "[" * 40 + "]" * 40, "a.0"),
        ("- a\n" * 12_000, "jobspec"),
        ("long: &a " + "x" * 200_000 + "\nb: [" + "*a," * 900 + "]\n", "jobspec"),
        ("a: 0x" + "f" * 200_000, "a"),
        ('tags: {a: "\\x1b[2J"}', "tags.a"),
        ("tags: {a: !!binary aGk=}", "tags.a"),
        ("tags: !!set {a}", "tags"),
    ],
    ids=["lists", "mappings", "cycle", "deep", "list", "text", "number", "control", "bytes", "set"],
)
def test_a_file_that_describes_too_much(inventory: Path, text: str, where: str) -> None:
    (inventory / "jobspecs" / "bomb.yaml").write_text(f"a: &a {{x: 1}}\n{text}" if text.startswith("b: ") else text)
    started = time.monotonic()
    jobspec, (finding,) = load_jobspec("bomb.yaml", [str(inventory)])
    assert time.monotonic() - started < 30
    assert jobspec is None and finding.where.startswith(where)
    assert finding.problem.isprintable() and len(finding.problem) < 300


def test_ordinary_aliases_and_merges(inventory: Path) -> None:
    (inventory / "jobspecs" / "x.yaml").write_text("a: &a {b: 1, c: 2}\nd: {<<: *a, b: 3}\ne: [*a, *a]\n")
    jobspec, findings = load_jobspec("x.yaml", [str(inventory)])
    assert findings == []
    assert jobspec == {"a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}, "e": [{"b": 1, "c": 2}] * 2}
    (inventory / "jobspecs" / "x.yaml").write_text("# nothing\n")
    assert load_jobspec("x.yaml", [str(inventory)]) == (None, [])
