"""What a role documents (meta/argument_specs.yml) and what it does (defaults/main.yml) are the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = sorted(path for path in (Path(__file__).resolve().parents[3] / "roles").iterdir() if path.is_dir())
TYPES = {"str": str, "path": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict}


def entry_points(role: Path) -> dict[str, dict[str, Any]]:
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    assert isinstance(specs, dict)
    return specs


def options(role: Path) -> dict[str, dict[str, Any]]:
    """The options of all entry points; one that several have is the same in each."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entry_points(role).values():
        for name, option in entry.get("options", {}).items():
            assert found.setdefault(name, option) == option, f"{name} is documented in two ways"
    return found


def defaults(role: Path) -> dict[str, Any]:
    file = role / "defaults" / "main.yml"
    return (yaml.safe_load(file.read_text()) or {}) if file.exists() else {}


def documented_defaults(role: Path) -> dict[str, Any]:
    """A default that Jinja computes is text, which a documented number cannot be; its description has it."""
    found = defaults(role)
    computed = {
        name
        for name, option in options(role).items()
        if "{{" in str(found.get(name)) and option["type"] not in ("str", "path")
    }
    return {name: None if name in computed else value for name, value in found.items()}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_specs_and_defaults_have_the_same_values(role: Path) -> None:
    documented = {name: option.get("default") for name, option in options(role).items() if not option.get("required")}
    done = documented_defaults(role)
    assert documented == done and {"cluster", "job", "staging"} <= {role.name for role in ROLES}
    # True == 1 and 5 == 5.0 for Python, not for a reader.
    assert {name: type(value) for name, value in documented.items()} == {
        name: type(value) for name, value in done.items()
    }


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_option_is_described_and_its_default_of_the_type_and_among_the_choices(role: Path) -> None:
    for name, option in options(role).items():
        assert option.get("description"), name
        value = option.get("default")
        if option.get("required"):
            assert "default" not in option, f"{name} is required and has a default"
        elif value is not None:
            assert isinstance(value, TYPES[option["type"]]), name
            assert isinstance(value, bool) == (option["type"] == "bool"), name
            assert "{{" in str(value) or value in option.get("choices", [value]), name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_files_of_a_role(role: Path) -> None:
    file = role / "defaults" / "main.yml"
    lines = file.read_text().splitlines() if file.exists() else []
    assert not [line for above, line in pairwise(lines) if line[:1].isalpha() and not above.startswith("# ")]
    # An entry point without a file documents nothing. `cluster` is variables only.
    tasks = {file.stem for file in (role / "tasks").glob("*.yml")}
    assert not tasks or entry_points(role).keys() <= tasks
    # The variables of the cluster are the same for all hosts, and each validation of a host takes time.
    meta = yaml.safe_load((role / "meta" / "main.yml").read_text())
    expected = [] if role.name == "cluster" else [{"role": "argus.verl.cluster", "run_once": True}]
    assert meta["dependencies"] == expected
