"""The rooms of the collection: which package imports which, and what each may use."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
UTILS = REPO / "plugins" / "module_utils"
# What each room may import besides itself.
ARCHIVES = {"argus.common", "argus.io", "argus.archive"}
# The launcher starts without packages, and what it imports.
LAUNCHER: dict[str, set[str]] = {
    "argus.common": set(),
    "argus.io": set(),
    # They run in every process of a trainer.
    "argus.hooks": {"argus.io"},
    "argus.archive": {"argus.common", "argus.io"},
    "argus.ray": {"argus.io", "argus.archive"},
    "argus.evidence": {*ARCHIVES, "argus.hooks", "argus.ray"},
    "argus.queue": {"argus.io", "argus.archive", "argus.hooks", "argus.ray", "argus.evidence"},
    "argus.launcher": {*ARCHIVES, "argus.hooks", "argus.ray", "argus.evidence", "argus.queue"},
}
PROGRAM: dict[str, set[str]] = {
    **LAUNCHER,
    "argus.cluster": {*ARCHIVES, "argus.ray"},
    "argus.fabric": {"argus.ray"},
    "argus.jobspec": {*ARCHIVES, "argus.hooks", "argus.ray", "argus.queue", "argus.launcher"},
    "argus.checks": {"argus.common", "argus.io"},
    "argus.staging": {*ARCHIVES, "argus.ray", "argus.checks"},
    "argus.gate": {*ARCHIVES, "argus.ray", "argus.queue", "argus.jobspec", "argus.checks"},
    "argus.jobs": {*LAUNCHER, "argus.jobspec", "argus.gate"},
    "argus.report": {*LAUNCHER.keys() - {"argus.hooks"}, "argus.cluster", "argus.jobs"},
    "argus.steward": {*LAUNCHER, "argus.jobs"},
    "argus.verbs": {
        *ARCHIVES,
        *("argus.hooks", "argus.ray", "argus.evidence", "argus.cluster", "argus.fabric", "argus.jobspec", "argus.jobs"),
        *("argus.report", "argus.staging"),
    },
    "argus.cli": {"argus.common", "argus.io", "argus.jobs", "argus.staging", "argus.verbs"},
    "argus.__main__": {"argus.cli", "argus.launcher", "argus.steward"},
}
FILES = {"privileges", "argus.common"}
MAY_IMPORT: dict[str, set[str]] = {
    **PROGRAM,
    "privileges": {"argus.common"},
    "network": FILES,
    "cluster": {*FILES, "network"},
    "preflight": {*FILES, "argus.fabric", "network", "cluster"},
    "slurm": set(),
    # On the controller alone.
    "plugin_utils.inventory": {*FILES, "argus.cluster", "network", "cluster"},
    "plugin_utils.plan": {
        *("argus.common", "argus.archive", "argus.ray", "argus.cluster", "cluster", "plugin_utils.inventory"),
    },
    "plugin_utils.presence": {
        *("argus.common", "argus.ray", "argus.cluster", "cluster", "plugin_utils.inventory", "plugin_utils.plan"),
    },
    "plugin_utils.slurm": {"argus.common", "network", "slurm"},
}
STANDARD_LIBRARY = {*LAUNCHER, "argus.cluster"}
# The only file of the program that imports Ansible.
ARGUMENT_SPEC = "argus.jobspec.options"


def modules() -> Iterator[tuple[str, Path]]:
    """The dotted names of the program, of module_utils, and of packages of plugin_utils; a package is its directory."""
    for top, pattern in ((REPO, "argus/**/*.py"), (UTILS, "**/*.py"), (UTILS.parent, "plugin_utils/*/*.py")):
        for source in sorted(top.glob(pattern)):
            yield ".".join(source.relative_to(top).with_suffix("").parts).removesuffix(".__init__"), source


MODULES = dict(modules())


def room_of(name: str) -> str:
    first, _, rest = name.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first in ("argus", "plugin_utils") and rest else first


@functools.cache
def imports(name: str) -> tuple[tuple[str, ast.Import | ast.ImportFrom, bool], ...]:
    return tuple(imports_in(name))


def imports_in(name: str) -> Iterator[tuple[str, ast.Import | ast.ImportFrom, bool]]:
    """The absolute names that a file imports, and whether inside a function. `from .a import b` is both a and a.b."""
    source = MODULES[name]
    package = name.split(".") if source.name == "__init__.py" else name.split(".")[:-1]
    package = package if package[:1] in (["argus"], ["plugin_utils"]) else ["module_utils", *package]
    tree = ast.parse(source.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node, id(node) in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            base = base[1:] if base[:1] == ["module_utils"] else base
            yield from ((".".join([*base, alias.name]), node, id(node) in inside) for alias in node.names)
            yield ".".join(base), node, id(node) in inside


def imported_modules(name: str) -> set[str]:
    """The files that a file imports, without itself and without the packages of these files."""
    modules = {other for other, _node, _inside in imports(name) if other in MODULES} - {name}
    return {other for other in modules if not any(module.startswith(f"{other}.") for module in modules)}


def listed(offenders: Iterable[str]) -> str:
    return "\n" + "\n".join(sorted(offenders))


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room_of(name) for name in MODULES} - {"argus", "__init__"} == set(MAY_IMPORT)
    assert all(room not in MAY_IMPORT[other] for room, others in MAY_IMPORT.items() for other in others)


def test_rooms_import_in_one_direction() -> None:
    offenders = []
    for name in MODULES.keys() - {"argus"}:
        rooms = {room_of(other) for other in imported_modules(name)} - {room_of(name)}
        offenders += [f"{name} imports {room}" for room in rooms - MAY_IMPORT[room_of(name)]]
    assert not offenders, listed(offenders)


def test_files_do_not_import_each_other_in_a_cycle() -> None:
    remaining = {name: imported_modules(name) for name in MODULES}
    while free := [name for name, others in remaining.items() if not others & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert not remaining, listed(f"{name} -> {sorted(others)}" for name, others in remaining.items())


def test_imports_are_relative() -> None:
    offenders = [
        f"{name}:{node.lineno}"
        for name in MODULES
        for other, node, _inside in imports(name)
        if not getattr(node, "level", 0) and other.startswith(("argus", "ansible_collections"))
    ]
    assert not offenders, listed(offenders)


def test_the_program_does_not_import_ansible() -> None:
    offenders = [
        f"{name}:{node.lineno} imports {other}"
        for name in MODULES
        if room_of(name) in PROGRAM and name != ARGUMENT_SPEC
        for other, node, _inside in imports(name)
        if other.partition(".")[0] == "ansible"
    ]
    assert not offenders, listed(offenders)


@pytest.mark.parametrize("room", sorted(STANDARD_LIBRARY))
def test_the_standard_library_and_inside_functions_ray(room: str) -> None:
    offenders = [
        f"{name}:{node.lineno} imports {other}"
        for name in MODULES
        if room_of(name) == room
        for other, node, inside in imports(name)
        if other.partition(".")[0] not in {*sys.stdlib_module_names, "argus"} and not (other == "ray" and inside)
        if not (inside and other.startswith("ray."))
    ]
    assert not offenders, listed(offenders)


@pytest.mark.parametrize("name", [name for name, source in MODULES.items() if source.name == "__init__.py"])
def test_a_package_says_what_lives_there(name: str) -> None:
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) and len(tree.body) == 1, "an __init__.py has a docstring and nothing else"


def test_the_controller_needs_no_package_of_the_program() -> None:
    """What jobs need is in the nodes' image: a controller has ansible-core alone."""
    names = [
        "ansible_collections.argus.verl." + ".".join(source.relative_to(REPO).with_suffix("").parts)
        for source in sorted((REPO / "plugins").glob("*/**/*.py"))
        if "module_utils" not in source.parts
    ]
    code = "import importlib, sys\nfor name in ('click', 'pydantic', 'ray'): sys.modules[name] = None\n"
    code += f"for name in {names}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
