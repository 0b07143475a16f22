"""The rooms of the collection: which package imports which, and how large a file, a function and a block may be."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
UTILS = PLUGINS / "module_utils"
PREFIX = ("ansible_collections", "argus", "verl", "plugins", "module_utils")
# The files above the packages, and what each room may import besides itself.
FILES = {"findings", "privileges", "text", "shared_root", "node_environment"}
MAY_IMPORT: dict[str, set[str]] = {
    "text": set(),
    "shared_root": set(),
    "node_environment": set(),
    "findings": {"text"},
    "privileges": {"shared_root"},
    # It is copied into every archive.
    "launcher": set(),
    "network": {*FILES, "launcher"},
    "storage": {*FILES, "network"},
    "cluster": {*FILES, "launcher", "network"},
    "preflight": {*FILES, "launcher", "network", "storage", "cluster"},
    "slurm": FILES,
    "job": {*FILES, "launcher"},
    "status": {*FILES, "launcher", "job"},
    "checks": {*FILES, "launcher", "job"},
    "staging": {*FILES, "launcher", "checks"},
    "gate": {*FILES, "launcher", "job", "checks"},
    "operations": {*FILES, "launcher", "job", "checks", "gate", "status"},
}
# Packages that run where only the standard library and the packages of the image are.
NO_ANSIBLE = ("launcher", "checks")
MAX_FILE, MAX_FUNCTION, MAX_NESTING = 400, 50, 4
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SOURCES = sorted(PLUGINS.rglob("*.py"))
UTIL_SOURCES = sorted(UTILS.rglob("*.py"))


def name_of(source: Path) -> tuple[str, ...]:
    """The dotted name of a file below module_utils; that of a package is its directory."""
    parts = source.relative_to(UTILS).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def tree_of(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


MODULES = {name_of(source): source for source in UTIL_SOURCES}


def imports(source: Path) -> Iterator[tuple[tuple[str, ...], ast.stmt]]:
    """The absolute dotted names that a file of module_utils imports. `from .a import b` is both a and a.b."""
    package = name_of(source) if source.name == "__init__.py" else name_of(source)[:-1]
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Import):
            yield from ((tuple(alias.name.split(".")), node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                base = (*PREFIX, *package[: len(package) - node.level + 1], *base)
            yield base, node
            yield from (((*base, alias.name), node) for alias in node.names)


def imported_modules(source: Path) -> set[tuple[str, ...]]:
    """The files of module_utils that a file imports, without itself."""
    found = {name[len(PREFIX) :] for name, _node in imports(source) if name[: len(PREFIX)] == PREFIX}
    modules = {name for name in found if name in MODULES} - {name_of(source)}
    # The package of a module is imported with it, but its __init__ is only a docstring.
    return {name for name in modules if not any(other[: len(name)] == name and other != name for other in modules)}


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def nesting(node: ast.AST) -> int:
    """The depth of blocks below a node. An `elif` is no deeper than its `if`; functions count on their own."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, (isinstance(child, BLOCKS) and not is_elif) + nesting(child))
    return deepest


def code_lines(source: Path) -> int:
    """The lines of a file, without a module's documentation strings."""
    text = source.read_text(encoding="utf-8")
    documented = ("DOCUMENTATION", "EXAMPLES", "RETURN")
    strings = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in documented
    ]
    return len(text.splitlines()) - sum((node.end_lineno or 0) - node.lineno + 1 for node in strings)


def listed(offenders: Iterable[str]) -> str:
    return "\n" + "\n".join(sorted(offenders))


def relative(source: Path) -> str:
    return str(source.relative_to(PLUGINS))


def test_every_room_has_its_place_in_the_order() -> None:
    assert {name[0] for name in MODULES if name} == set(MAY_IMPORT)


def test_rooms_import_in_one_direction() -> None:
    offenders = []
    for name, source in MODULES.items():
        rooms = {other[0] for other in imported_modules(source)} - {name[0]}
        offenders += [f"{relative(source)} imports {room}" for room in rooms - MAY_IMPORT[name[0]]]
    assert not offenders, listed(offenders)


def test_the_order_of_rooms_has_no_cycle() -> None:
    for room, others in MAY_IMPORT.items():
        assert all(room not in MAY_IMPORT[other] for other in others)


def test_files_do_not_import_each_other_in_a_cycle() -> None:
    remaining = {name: imported_modules(source) for name, source in MODULES.items()}
    while free := [name for name, others in remaining.items() if not others & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert not remaining, listed(
        f"{'.'.join(name)} -> {sorted('.'.join(o) for o in remaining[name])}" for name in remaining
    )


def test_imports_within_module_utils_are_relative() -> None:
    offenders = [
        f"{relative(source)}:{node.lineno}"
        for source in UTIL_SOURCES
        for name, node in imports(source)
        if name[:1] == ("ansible_collections",) and not (isinstance(node, ast.ImportFrom) and node.level)
    ]
    assert not offenders, listed(offenders)


def test_packages_that_run_in_the_image_do_not_import_ansible() -> None:
    offenders = [
        f"{relative(source)}:{node.lineno} imports {name[0]}"
        for source in UTIL_SOURCES
        if name_of(source)[:1] and name_of(source)[0] in NO_ANSIBLE
        for name, node in imports(source)
        if name[0] == "ansible"
    ]
    assert not offenders, listed(offenders)


def test_the_launcher_imports_only_the_standard_library_and_inside_functions_ray() -> None:
    offenders = []
    for source in sorted((UTILS / "launcher").glob("*.py")):
        bodies = [range(each.lineno, (each.end_lineno or 0) + 1) for each in functions(tree_of(source))]
        for name, node in imports(source):
            own = name[: len(PREFIX)] == PREFIX and name[len(PREFIX) :][:1] == ("launcher",)
            ray = name[0] == "ray" and any(node.lineno in body for body in bodies)
            if not (own or ray or name[0] in sys.stdlib_module_names):
                offenders.append(f"{relative(source)}:{node.lineno} imports {'.'.join(name)}")
    assert not offenders, listed(offenders)


@pytest.mark.parametrize(
    "package", [source.parent for source in UTIL_SOURCES if source.name == "__init__.py"], ids=lambda path: path.name
)
def test_a_package_says_what_lives_there(package: Path) -> None:
    tree = tree_of(package / "__init__.py")
    text = ast.get_docstring(tree) or ""
    assert len(tree.body) == 1, "an __init__.py has a docstring and nothing else"
    assert len(text.splitlines()) > 2
    assert re.search(r"\b(call|use)", text, re.IGNORECASE), "who may call it?"


def test_no_file_is_too_long() -> None:
    offenders = [f"{relative(source)}: {lines} lines" for source in SOURCES if (lines := code_lines(source)) > MAX_FILE]
    assert not offenders, listed(offenders)


def test_no_function_is_too_long() -> None:
    offenders = [
        f"{relative(source)}:{function.lineno} {function.name}: {lines} lines"
        for source in SOURCES
        for function in functions(tree_of(source))
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION
    ]
    assert not offenders, listed(offenders)


def test_no_function_is_nested_too_deeply() -> None:
    offenders = [
        f"{relative(source)}:{function.lineno} {function.name}: {depth} levels"
        for source in SOURCES
        for function in functions(tree_of(source))
        if (depth := nesting(function)) > MAX_NESTING
    ]
    assert not offenders, listed(offenders)


# --- The test itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "depth"),
    [
        ("def f():\n  return 1", 0),
        ("def f():\n  if a:\n    pass\n  elif b:\n    pass\n  else:\n    pass", 1),
        ("def f():\n  if a:\n    pass\n  else:\n    if b:\n      pass\n    c()", 2),
        ("for a in b:\n with c:\n  try:\n   while d:\n    pass\n  except E:\n   pass", 3),
        ("def f():\n  try:\n    pass\n  except E:\n    if a:\n      pass", 2),
        ("def f():\n  if a:\n    def g():\n      if b:\n        pass", 1),
    ],
)
def test_how_nesting_is_counted(code: str, depth: int) -> None:
    assert nesting(ast.parse(code).body[0]) == depth


def test_imports_are_resolved() -> None:
    stage = UTILS / "staging" / "dataset" / "stage.py"
    assert ("findings",) in imported_modules(UTILS / "job" / "parse.py")
    assert ("staging", "errors") in imported_modules(stage)
    assert all(len(name) > 1 for name in imported_modules(stage) if name[0] == "staging")
