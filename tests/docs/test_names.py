"""Files, targets of make and variables that pages name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from script_module import script_module

from docs import pages

FOLDERS = "argus|plugins|roles|playbooks|tests|tools|images|inventories|benchmarks|molecule|docs|changelogs"
FILE = re.compile(rf"(?<![\w./])(?:{FOLDERS})/[\w./-]+\.(?:py|md|yml|yaml|sh|json|svg)")
TARGET = re.compile(r"^\s*make ([a-z][a-z-]+)")
VARIABLE = re.compile(
    r"-e ((?:cluster|preflight|ray_node|staging|job)_\w+|allow_disruption|submission_id|jobspec|keep|keep_days)="
)


def code() -> Iterator[tuple[str, str]]:
    """Code in the text of pages, and their blocks of commands, with their places."""
    for page in pages.pages():
        for line in pages.lines(page):
            yield from ((line.place, match[2]) for match in pages.CODE.finditer(line.text))
        for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            if text.startswith("    "):
                yield f"{page.relative_to(pages.REPO)}:{number}", text.partition("#")[0]


def test_files_exist() -> None:
    lost = [
        f"{place}: {name}"
        for place, text in code()
        for name in FILE.findall(text)
        # The reader's own inventory is a copy.
        if "<" not in text and "inventories/mycluster" not in name and not (pages.REPO / name).exists()
    ]
    assert not lost, "\n".join(lost)


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (pages.REPO / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [(place, name) for place, text in code() for name in TARGET.findall(text)]
    assert len(named) > 20
    assert [f"{place}: make {name}" for place, name in named if name not in targets] == []


def test_variables_of_commands_exist() -> None:
    options: set[str] = set()
    for specs in pages.REPO.glob("roles/*/meta/argument_specs.yml"):
        for spec in yaml.safe_load(specs.read_text(encoding="utf-8"))["argument_specs"].values():
            options |= set(spec["options"])
    named = [(place, name) for place, text in code() for name in VARIABLE.findall(text)]
    assert len(named) > 20
    assert [f"{place}: {name}" for place, name in named if name not in options] == []


def test_the_table_of_commands_is_complete() -> None:
    """It has each playbook, and each verb of argus with its options and their variables."""
    text = (pages.REPO / "docs" / "short_command.md").read_text(encoding="utf-8")
    argus = script_module(pages.REPO / "bin" / "argus_command.py")
    assert [file for file in pages.REPO.glob("playbooks/*.yml") if f"`{file.stem}`" not in text] == []
    for verb in argus.VERBS:
        row = next(line for line in text.splitlines() if re.match(rf"\| `{verb.name}[` ](?!--)", line))
        named = {f"`{option}`: `{name}`" if name else f"`{option}`" for option, name in argus.options_of(verb)}
        assert {name for name in named | {f"`{verb.playbook}`"} if name not in row} == set()
