from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.jobspec_file import load_jobspec

THERE = "correct the YAML there"
VALUES = "has more than 10,000 values"


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
    given, findings = load_jobspec(name, [str(inventory) for inventory in inventories])
    assert findings == []
    return str(given["workload"])


def test_a_jobspec_beside_the_inventory(inventory: Path) -> None:
    assert loaded("grpo.yaml", inventory) == "grpo"
    assert loaded("grpo.yaml", inventory / "hosts.yml") == "grpo"


def test_a_jobspec_in_json(inventory: Path) -> None:
    text = '{\n\t"workload": "ppo",\n\t"trainer_overrides": {"optim.lr": 1e-06}, "submission_id": null\n}\n'
    (inventory / "jobspecs" / "ppo.json").write_text(text)
    given, findings = load_jobspec("ppo.json", [str(inventory)])
    assert findings == []
    assert given == {"workload": "ppo", "trainer_overrides": {"optim.lr": 1e-6}, "submission_id": None}
    (finding,) = load_jobspec("po.json", [str(inventory)])[1]
    assert finding.todo == 'did you mean "ppo.json"?'
    (inventory / "jobspecs" / "twice.json").write_text('{"model": 1, "model": 2}')
    assert len(load_jobspec("twice.json", [str(inventory)])[1]) == 1


def test_the_first_inventory_with_the_file(inventory: Path) -> None:
    other = inventory.with_name("prod")
    (other / "jobspecs").mkdir(parents=True)
    (other / "jobspecs" / "sft.yaml").write_text("workload: sft\n")
    (other / "jobspecs" / "grpo.yaml").write_text("workload: other\n")
    assert loaded("sft.yaml", inventory, other) == "sft"
    assert loaded("grpo.yaml", inventory, other) == "grpo"


def test_a_path_has_precedence_over_the_inventory(inventory: Path) -> None:
    absolute = inventory / "jobspecs" / "grpo.yaml"
    assert loaded(str(absolute)) == "grpo"
    Path("grpo.yaml").write_text("workload: sft\n")
    assert loaded("grpo.yaml", inventory) == "sft"


def test_a_path_in_the_home_directory(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(inventory))
    assert loaded("~/jobspecs/grpo.yaml") == "grpo"


def test_a_directory_is_not_a_jobspec(inventory: Path) -> None:
    Path("grpo.yaml").mkdir()
    assert loaded("grpo.yaml", inventory) == "grpo"


@pytest.mark.parametrize(
    ("name", "what", "todo"),
    [
        ("gpro.yaml", "there is no file 'gpro.yaml'", 'did you mean "grpo.yaml"?'),
        ("x", "there is no file 'x'", "the inventory has grpo.yaml; a path to any other file works as well"),
        ("gsm8k", "there is no file 'gsm8k'", "the inventory has grpo.yaml; a path to any other file works as well"),
        ("", "no file was named", "the inventory has grpo.yaml; a path to any other file works as well"),
        ("~nobody-at-all/x", "there is no file '~nobody-at-all/x'", "the inventory has grpo.yaml; a path to any other"),
        ("a\0b", r"there is no file 'a\x00b'", "the inventory has grpo.yaml; a path to any other file works as well"),
        # A JobSpec in place of its file's name.
        (
            "{'a': '" + "x" * 5000,
            "there is no file \"{'a': '" + "x" * 193,
            "the inventory has grpo.yaml; a path to any",
        ),
    ],
)
def test_the_files_of_the_inventory_are_named(inventory: Path, name: str, what: str, todo: str) -> None:
    given, (finding,) = load_jobspec(name, [str(inventory), "box,"])
    assert given is None
    assert finding.where == "jobspec"
    assert finding.what.startswith(what)
    assert finding.todo.startswith(todo)


@pytest.mark.parametrize(
    ("content", "line", "what", "todo"),
    [
        (b"workload: [grpo\n", 2, "while parsing a flow sequence, expected ',' or ']', but got '<stream end>'", THERE),
        (b"workload: grpo\n\tmodel: x\n", 2, "while scanning for the next token, found character '\\t' that", THERE),
        (b"workload: gr\xff\n", 0, "'utf-8' codec can't decode byte 0xff", "save the file as UTF-8"),
        (b"a: !!python/object/apply:os.system [date]\n", 1, "could not determine a constructor for the tag", THERE),
        (b"a: 1\n---\nb: 2\n", 2, "expected a single document in the stream, but found another document", THERE),
        (b"model: a\ntags: {a: 1}\nmodel: b\n", 3, "the key 'model' is in line 1 as well", "keep only one of them"),
        (b"tags: {a: 1, 'a': 2}\n", 1, "the key 'a' is in line 1 as well", "keep only one of them"),
        (b"a: {b: 1, c: {d: 1,\n d: 1}}\n", 2, "the key 'd' is in line 1 as well", "keep only one of them"),
        (b"- " * 100_000, 0, "is nested too deep", "write it with less nesting"),
        (b"{a: " * 50_000, 0, "is nested too deep", "write it with less nesting"),
        (b"#" * (257 * 1024), 0, "has more than 256 KiB", "move data and code to files under the shared root"),
        (b"a: 2026-99-99\n", 0, "cannot be read: month must be in 1..12", "correct the YAML"),
        (b"!!bool x", 0, "cannot be read: 'x'", "correct the YAML"),
        (b"!!int ''", 0, "cannot be read: string index out of range", "correct the YAML"),
        (b"!!timestamp x", 0, "cannot be read: 'NoneType' object", "correct the YAML"),
        (b"{[a]: 1}", 1, "while constructing a mapping, found unhashable key", THERE),
        (
            b"a: \x07\n",
            0,
            "cannot be read: unacceptable character #x0007: special characters are not",
            "correct the YAML",
        ),
        (b"a: !" + b"b" * 200_000 + b" c", 1, "could not determine a constructor for the tag '!bbb", THERE),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_is_not_a_jobspec(inventory: Path, content: bytes, line: int, what: str, todo: str) -> None:
    file = inventory / "jobspecs" / "bad.yaml"
    file.write_bytes(content)
    started = time.monotonic()
    given, (finding,) = load_jobspec("bad.yaml", [str(inventory)])
    assert time.monotonic() - started < 30
    assert given is None
    assert finding.where == (f"{file}, line {line}" if line else str(file))
    assert finding.what.startswith(what)
    assert finding.todo.startswith(todo)
    assert "\n" not in finding.what
    assert len(finding.what) <= 300


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in pairwise("abcdefghi")), "jobspec", VALUES),
        (
            "".join(f"{b}: &{b} {{x: *{a}, y: *{a}, z: [*{a}, *{a}]}}\n" for a, b in pairwise("abcdefghijklmnop")),
            "jobspec",
            VALUES,
        ),
        ("a: &a [*a]\n", "a.0", "is nested more than 32 levels deep"),
        ("a: &a {b: {c: *a}}\n", "a.b", "is nested more than 32 levels deep"),
        ("a: " + "[" * 40 + "]" * 40, "a.0", "is nested more than 32 levels deep"),
        ("- a\n" * 60_000, "jobspec", VALUES),
        ("long: &a " + "x" * 200_000 + "\nb: [" + "*a," * 900 + "]\n", "jobspec", "has more than 1,048,576 characters"),
        ("a: 0x" + "f" * 200_000, "a", "is too long for a number"),
    ],
    ids=["lists", "mappings", "cycle", "long cycle", "deep", "list", "text", "number"],
)
def test_a_file_that_describes_too_much(inventory: Path, text: str, where: str, what: str) -> None:
    file = inventory / "jobspecs" / "bomb.yaml"
    file.write_text(f"a: &a {{x: 1}}\n{text}" if text.startswith("b: ") else text)
    started = time.monotonic()
    given, (finding,) = load_jobspec("bomb.yaml", [str(inventory)])
    assert time.monotonic() - started < 30
    assert given is None
    assert finding.where.startswith(where)
    assert finding.what == what


def test_ordinary_aliases_and_merges(inventory: Path) -> None:
    (inventory / "jobspecs" / "x.yaml").write_text("a: &a {b: 1, c: 2}\nd: {<<: *a, b: 3}\ne: [*a, *a]\n")
    given, findings = load_jobspec("x.yaml", [str(inventory)])
    assert findings == []
    assert given == {"a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}, "e": [{"b": 1, "c": 2}] * 2}


def test_an_empty_file(inventory: Path) -> None:
    (inventory / "jobspecs" / "x.yaml").write_text("# nothing\n")
    assert load_jobspec("x.yaml", [str(inventory)]) == (None, [])


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ('tags: {a: "\\x1b[2J"}', "tags.a", "contains the control character U+001B"),
        ("tags: {a: !!binary aGk=}", "tags.a", "is a bytes"),
        ("tags: !!set {a}", "tags", "is a set"),
        ("a: &a [*a]", "0.0.0", "is nested more than 32 levels deep"),
        ("a: [" + "b, " * 10_000 + "]", "jobspec", "has more than 10,000 values"),
    ],
)
def test_values_that_no_jobspec_has(inventory: Path, text: str, where: str, what: str) -> None:
    (inventory / "jobspecs" / "x.yaml").write_text(text)
    given, (finding,) = load_jobspec("x.yaml", [str(inventory)])
    assert (given, finding.what) == (None, what) and finding.where.endswith(where)


def test_a_file_that_cannot_be_read() -> None:
    given, (finding,) = load_jobspec("/proc/self/mem", [])
    assert given is None
    assert (finding.where, finding.what) == ("/proc/self/mem", "cannot be read: Input/output error")
    assert finding.todo == "correct the path or its permissions"


def test_an_inventory_without_jobspecs(tmp_path: Path) -> None:
    given, (finding,) = load_jobspec("x.yaml", [str(tmp_path)])
    assert given is None
    assert finding.todo == "the inventory has none; a path to any other file works as well"
