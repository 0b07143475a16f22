"""Every boolean variable is converted where it is read: -e passes text, and "false" is true for Jinja and Python.

Ansible compares variables with the argument specs of roles, but does not convert what tasks see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).resolve().parents[3]
FILES = sorted(file for part in ("roles/*/tasks", "roles/*/vars", "playbooks") for file in REPO.glob(f"{part}/*.yml"))
# The plan of a cluster reads it from the variables of all nodes, and converts it, see the tests of cluster_plan.
OF_THE_PLAN = {"ray_node_read_only"}


BOOLEANS = {
    name
    for file in REPO.glob("roles/*/meta/argument_specs.yml")
    for entry in yaml.safe_load(file.read_text())["argument_specs"].values()
    for name, option in entry.get("options", {}).items()
    if option["type"] == "bool"
}


def texts(value: Any, *path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text of a file, with the keys above it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, *path, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, *path)
    elif isinstance(value, str):
        yield path, value


def is_boolean_argument(path: tuple[str, ...]) -> bool:
    """Whether it is an argument of a module of the collection, which converts it."""
    if len(path) < 2 or not path[-2].startswith("argus.verl."):
        return False
    source = REPO / "plugins" / "modules" / f"{path[-2].rpartition('.')[2]}.py"
    (text,) = re.findall(r'^ *DOCUMENTATION = r"""(.*?)^"""', source.read_text(), re.DOTALL | re.MULTILINE)
    return bool(yaml.safe_load(text)["options"].get(path[-1], {}).get("type") == "bool")


TEXTS = [(file, path, text) for file in FILES for path, text in texts(yaml.load(file.read_text(), yaml.CSafeLoader))]


def uses(name: str) -> list[tuple[Path, tuple[str, ...], str]]:
    """Where its value is read: not in a message with its name, nor where only its presence counts."""
    unread = re.compile(rf"-e {name}=|\b{name} is defined")
    return [
        (file, path, text)
        for file, path, whole in TEXTS
        if name in whole and re.search(rf"\b{name}\b", text := unread.sub("", whole))
    ]


@pytest.mark.parametrize("name", sorted(BOOLEANS))
def test_boolean_is_converted_where_it_is_read(name: str) -> None:
    assert bool(uses(name)) != (name in OF_THE_PLAN)
    for file, path, text in uses(name):
        whole = text == f"{{{{ {name} }}}}"
        converted = len(re.findall(rf"\b{name} \| bool\b", text)) == len(re.findall(rf"\b{name}\b", text))
        passed_on = whole and is_boolean_argument(path)
        assert converted or passed_on, f"{file.relative_to(REPO)}: {'.'.join(path)}: {text}"
