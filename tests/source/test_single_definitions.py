"""An option has one definition, and a value is parsed once, where it enters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]
OPTIONS = {
    name
    for file in REPO.glob("roles/*/meta/argument_specs.yml")
    for entry in yaml.safe_load(file.read_text())["argument_specs"].values()
    for name in entry.get("options", {})
}
# Where what enters is parsed, by the function that does it.
PARSED_IN = {
    # The JobSpec: its file on the controller, and all of it on the head.
    "load_jobspec": {"plugins/action/ray_job.py"},
    "parse_jobspec": {"argus/jobs/request.py"},
    # The JobSpec, and items to stage.
    "model_validate": {"argus/jobspec/parse.py", "argus/verbs/stage.py"},
    # The variables of nodes, for the two actions that decide from all of them.
    "node_variables": {"plugins/plugin_utils/role_options.py"},
    "play_variables": {"plugins/action/cluster_plan.py", "plugins/action/preflight_report.py"},
}


@pytest.fixture(scope="module")
def sources() -> dict[str, ast.Module]:
    """The syntax trees of all files, by their paths."""
    paths = [path for top in ("argus", "plugins") for path in (REPO / top).rglob("*.py")]
    return {str(path.relative_to(REPO)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls in a file, by the last name of the function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            yield getattr(function, "attr", getattr(function, "id", "")), node


def test_an_option_has_one_default(sources: dict[str, ast.Module]) -> None:
    """Checks of an inventory before its variables are typed compare a node with others, and give no default."""
    checks = ("plugins/plugin_utils/inventory/inventory.py", "plugins/plugin_utils/inventory/port_inventory.py")
    further = [
        f"{file}:{call.lineno} {call.args[0].value}"
        for file, tree in sources.items()
        if file.startswith("plugins/") and not file.startswith(checks)
        for name, call in calls(tree)
        if name == "get" and len(call.args) == 2 and isinstance(call.args[0], ast.Constant)
        if call.args[0].value in OPTIONS and ast.unparse(call.args[1]) not in ("''", "None", "False")
    ]
    assert further == []


def test_a_value_is_parsed_where_it_enters(sources: dict[str, ast.Module]) -> None:
    callers: dict[str, set[str]] = {name: set() for name in PARSED_IN}
    for file, tree in sources.items():
        for name in {name for name, _call in calls(tree)} & PARSED_IN.keys():
            callers[name].add(file)
    assert callers == PARSED_IN


def test_action_group_lists_every_module() -> None:
    runtime = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text())
    assert runtime["action_groups"]["all"] == sorted(path.stem for path in REPO.glob("plugins/modules/*.py"))
