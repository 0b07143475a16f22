"""Files, targets of make and variables that pages name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from script_module import script_module
from unit.docs import pages

FOLDERS = "argus|plugins|roles|playbooks|tests|tools|images|inventories|benchmarks|molecule|docs|changelogs"
FILE = re.compile(rf"(?<![\w./])(?:{FOLDERS})/[\w./-]+\.(?:py|md|yml|yaml|sh|json|svg)")
TARGET = re.compile(r"^\s*make ([a-z][a-z-]+)")
VARIABLE = re.compile(
    r"-e ((?:cluster|preflight|ray_node|staging|job)_\w+|allow_disruption|submission_id|jobspec|keep|keep_days)="
)


def code(page: Path) -> Iterator[tuple[str, str]]:
    """Code in the text of a page, and its blocks of commands, with their places."""
    for line in pages.lines(page):
        for found in pages.CODE.finditer(line.text):
            yield line.place, found[2]
    for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if text.startswith("    "):
            yield f"{page.relative_to(pages.REPO)}:{number}", text.partition("#")[0]


def everywhere() -> list[tuple[str, str]]:
    return [found for page in pages.pages() for found in code(page)]


def test_files_exist() -> None:
    lost = [
        f"{place}: {name}"
        for place, text in everywhere()
        for name in FILE.findall(text)
        # The reader's own inventory is a copy.
        if "<" not in text and "inventories/mycluster" not in name and not (pages.REPO / name).exists()
    ]
    assert not lost, "\n".join(lost)


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (pages.REPO / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [(place, name) for place, text in everywhere() for name in TARGET.findall(text)]
    assert len(named) > 20
    assert [f"{place}: make {name}" for place, name in named if name not in targets] == []


def test_variables_of_commands_exist() -> None:
    known: set[str] = set()
    for specs in pages.REPO.glob("roles/*/meta/argument_specs.yml"):
        for spec in yaml.safe_load(specs.read_text(encoding="utf-8"))["argument_specs"].values():
            known |= set(spec["options"])
    named = [(place, name) for place, text in everywhere() for name in VARIABLE.findall(text)]
    assert len(named) > 20
    assert [f"{place}: {name}" for place, name in named if name not in known] == []


def test_the_table_of_commands_is_complete() -> None:
    """Each playbook has a row with its page, and each verb of argus one with its options and their variables."""
    page = pages.REPO / "docs" / "short_command.md"
    table = [pages.cells(line.text) for line in pages.lines(page) if re.match(r"\|.*\]\(\w+\.md", line.text)]
    playbooks = {file.stem for file in pages.REPO.glob("playbooks/*.yml")}
    assert {name for row in table for name in re.findall(r"`(\w+)`", row[1])} == playbooks
    command = script_module(pages.REPO / "bin" / "argus_command.py")
    rows = {" ".join(re.findall(r"^[a-z]+|--jobs", row[0].strip("`"))): row for row in table if row[0]}
    assert rows.keys() == {verb.name for verb in command.VERBS}
    for verb in command.VERBS:
        _verb, playbook, options = rows[verb.name]
        assert f"`{verb.playbook}`" in playbook
        named = [f"`{option}`: `{name}`" if name else f"`{option}`" for option, name in command.options_of(verb)]
        assert [text for text in named if text not in options] == []
