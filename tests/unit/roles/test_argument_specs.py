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
    merged: dict[str, dict[str, Any]] = {}
    for entry in entry_points(role).values():
        for name, option in entry.get("options", {}).items():
            assert merged.setdefault(name, option) == option, f"{name} is documented in two ways"
    return merged


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_specs_and_defaults_have_the_same_values(role: Path) -> None:
    file, optional = role / "defaults" / "main.yml", {}
    done = (yaml.safe_load(file.read_text()) or {}) if file.exists() else {}
    for name, option in options(role).items():
        assert option.get("description"), name
        value = option.get("default")
        if option.get("required"):
            assert "default" not in option, f"{name} is required and has a default"
            continue
        optional[name] = value
        # A default that Jinja computes is text, which a documented number cannot be; its description has it.
        if "{{" in str(done.get(name)) and option["type"] not in ("str", "path"):
            done[name] = None
        if value is not None:
            assert isinstance(value, TYPES[option["type"]]), name
            assert "{{" in str(value) or value in option.get("choices", [value]), name
    # True == 1 and 5 == 5.0 for Python, not for a reader.
    assert optional == done
    assert {name: type(value) for name, value in optional.items()} == {name: type(done[name]) for name in done}


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
