"""The scripts that write the documentation."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from unit.docs import pages

TOOLS = pages.REPO / "tools"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> Any:
    return script("generate_docs", monkeypatch)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    return script("build_docs", monkeypatch)


def test_a_table_escapes_bars_and_leaves_empty_columns_out(generate: ModuleType) -> None:
    assert generate.table(("A", "B", "C"), [("x|y", "", "1"), ("z", "", "")]) == (
        "| A | C |\n| --- | --- |\n| x\\|y | 1 |\n| z |  |\n"
    )


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"required": True}, "required"),
        ({}, "not set"),
        ({"default": ""}, '`""`'),
        ({"default": "auto"}, "`auto`"),
        ({"default": 5}, "`5`"),
        ({"default": False}, "`false`"),
        ({"default": []}, "`[]`"),
        ({"default": {"b": "x", "a": 1}}, "`{b: x, a: 1}`"),
    ],
)
def test_defaults_are_shown_as_yaml(generate: ModuleType, option: dict[str, Any], expected: str) -> None:
    assert generate.default(option) == expected


def test_a_description_names_the_choices(generate: ModuleType) -> None:
    option = {"description": ["First C(x).", "Second."], "choices": ["a", "b"]}
    assert generate.description(option) == "First `x`. Second. Choices: `a`, `b`."


def test_kinds_of_lists_name_their_elements(generate: ModuleType) -> None:
    assert generate.kind({"type": "list", "elements": "dict"}) == "list of dict"
    assert generate.kind({}) == "str"


def spec(**options: dict[str, Any]) -> dict[str, Any]:
    return {"short_description": "Short", "description": ["Long."], "options": options}


def test_entry_points_are_named_where_they_take_different_variables(generate: ModuleType) -> None:
    option = {"type": "int", "description": "Text."}
    same = generate.variables({"main": spec(a=option), "other": spec(a=option)})
    assert same.splitlines()[0] == "| Variable | Type | Default | Description |"
    differ = generate.variables({"main": spec(a=option, b=option), "other": spec(a=option)})
    assert differ.splitlines()[2:] == [
        "| `a` | `main`, `other` | int | not set | Text. |",
        "| `b` | `main` | int | not set | Text. |",
    ]


def test_a_role_has_tables_of_entry_points_and_items(generate: ModuleType) -> None:
    tables = generate.role_tables({"main": spec(things={"type": "list", "description": "All."})})
    assert tables["entry points"].splitlines()[2] == "| `main` | Short. Long. |"
    rows = generate.item_tables()["items of staging_datasets"].splitlines()
    assert rows[2].startswith("| `name` | str | required | The name of the dataset")
    assert [row for row in rows if row.startswith("| `columns.extra` | list of str | ")]


def test_keys_of_mappings_have_dotted_names(generate: ModuleType) -> None:
    inner: dict[str, Any] = {"suboptions": {"x": {}, "deeper": {"suboptions": {"y": {}}}}}
    assert [name for name, _option in generate.keys({"a": {}, "b": inner})] == ["a", "b.x", "b.deeper.y"]


def test_only_what_is_between_the_markers_is_written(generate: ModuleType) -> None:
    text = "before\n<!-- begin generated: one -->\nold\n<!-- end generated -->\nafter\n"
    assert generate.filled(text, {"one": "new\n"}) == text.replace("old", "new")


def test_a_page_that_is_not_current_is_reported_and_written(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    stale = "<!-- begin generated: one -->\nold\n<!-- end generated -->\n"
    page.write_text(stale)
    monkeypatch.setattr(generate, "REPO", tmp_path)
    monkeypatch.setattr(generate, "pages", lambda: [(page, {"one": "new\n"})])
    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generate.main() == 1
    assert page.read_text() == stale
    assert capsys.readouterr().out == "page.md: is not current; run make generate\n"
    monkeypatch.setattr("sys.argv", ["generate_docs.py"])
    assert generate.main() == 0
    assert page.read_text() == stale.replace("old", "new")
    assert capsys.readouterr().out == "page.md: written\n"
    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generate.main() == 0


def test_links_to_what_is_not_copied_lead_to_the_repository(build: ModuleType) -> None:
    text = "[a](b.md#c) [d](../inventories/dev) [e](https://example.org/x.md) [f](#here)"
    page, copied = Path("docs/page.md"), {Path("docs/b.md")}
    repository = "https://github.com/argus-verl/argus.verl/tree/main/inventories/dev"
    assert build.with_links(page, text, copied) == text.replace("../inventories/dev", repository)


def test_the_sidebar_has_every_page_once(build: ModuleType) -> None:
    names = [str(page.relative_to(pages.REPO).with_suffix("")) for page in pages.pages()]
    entries = [line for line in build.contents(names).splitlines() if line and not line.startswith((":", "`"))]
    assert sorted(entries) == sorted({*names, "collections/index"} - {"README"})


def test_the_installation_has_hashes() -> None:
    text = (pages.REPO / "docs" / "install.md").read_text()
    commands = [line for line in text.splitlines() if "pip install" in line]
    assert commands and all("--require-hashes" in line for line in commands)
    assert "community.docker <" not in text
