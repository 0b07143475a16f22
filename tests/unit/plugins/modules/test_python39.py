"""Modules for machines run with Python 3.9. The tests run with a newer one, and search for newer syntax and names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[4] / "plugins"
ON_MACHINES = (
    "modules/legacy_ray.py",
    "modules/machine_info.py",
    "modules/machine_state.py",
    # Programs of a Slurm job.
    "module_utils/slurm/relay.py",
    "module_utils/slurm/step.py",
)
PACKAGE = "ansible_collections.argus.verl.plugins."
# Names that came after 3.9, by module; None for a module that came later.
NEWER = {
    "enum": {"StrEnum", "ReprEnum", "verify", "member", "nonmember"},
    "datetime": {"UTC"},
    "typing": {"Self", "TypeAlias", "ParamSpec", "Concatenate", "assert_never", "Never", "LiteralString", "override"},
    "types": {"NoneType", "UnionType", "EllipsisType"},
    "itertools": {"pairwise", "batched"},
    "contextlib": {"chdir", "aclosing"},
    "inspect": {"get_annotations"},
    "tomllib": None,
}
TYPES = {"None", "bool", "bytes", "dict", "float", "int", "list", "set", "str", "tuple"}
BUILTINS = {"aiter", "anext", "ExceptionGroup", "BaseExceptionGroup", "EncodingWarning"}
# Arguments that came after 3.9, by function. A table is only printed on the controller.
ARGUMENTS = {"zip": {"strict"}, "dataclass": {"slots", "kw_only"}, "field": {"kw_only"}}
ONLY_ON_THE_CONTROLLER = {"module_utils/argus/common/text.py"}


def imported(path: str) -> Iterator[str]:
    """The files of the collection that a file imports."""
    for node in ast.walk(ast.parse((PLUGINS / path).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = PLUGINS.joinpath(*Path(path).parts[: -node.level])
        elif str(node.module).startswith(PACKAGE):
            base = PLUGINS
        else:
            continue
        parts = str(node.module or "").removeprefix(PACKAGE).split(".")
        module = base.joinpath(*filter(None, parts))
        for candidate in (module, *(module / alias.name for alias in node.names)):
            file = candidate.with_suffix(".py")
            if file.is_file():
                yield str(file.relative_to(PLUGINS))


def closure() -> list[str]:
    found: list[str] = []
    waiting = list(ON_MACHINES)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.append(path)
            waiting += imported(path)
    return sorted(found)


def newer_names(path: str, source: str) -> Iterator[str]:
    """Newer names and arguments, and unions of types outside annotations."""
    tree = ast.parse(source, feature_version=(3, 9))
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for field in ("annotation", "returns")
        if getattr(node, field, None) is not None
        for inner in ast.walk(getattr(node, field))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in NEWER:
            newer = NEWER[str(node.module)]
            yield from (alias.name for alias in node.names if newer is None or alias.name in newer)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if NEWER.get(alias.name, ()) is None)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in (NEWER.get(node.value.id) or ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            yield node.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and path not in ONLY_ON_THE_CONTROLLER:
            newer = ARGUMENTS.get(node.func.id, set())
            yield from (f"{node.func.id}({word.arg}=)" for word in node.keywords if word.arg in newer)
        elif isinstance(node, ast.BinOp) and id(node) not in annotations and is_union(node):
            yield ast.unparse(node)


def is_union(node: ast.BinOp) -> bool:
    sides = {ast.unparse(side) for side in (node.left, node.right)}
    return isinstance(node.op, ast.BitOr) and bool(sides & TYPES)


def test_all_imports_are_followed() -> None:
    found = closure()
    assert {"module_utils/argus/common/findings.py", "module_utils/argus/common/text.py"} <= set(found)
    for name in ("engine", "hardware", "machine", "probe"):
        assert f"module_utils/cluster/{name}.py" in found
    for newer in ("from enum import StrEnum", "import datetime\nx = datetime.UTC", "import tomllib", "X = int | None"):
        assert list(newer_names("x.py", newer))
    for newer in ("zip(a, b, strict=True)", "@dataclass(slots=True)\nclass A: pass", "raise ExceptionGroup('x', [])"):
        assert list(newer_names("x.py", newer))
    assert list(newer_names("x.py", "def f(a: int | None) -> str | None: ...")) == []
    # These would need more than the standard library of Python 3.9.
    further = [path for path in found if path.startswith("module_utils/argus/") and "/common/" not in path]
    assert further == []


@pytest.mark.parametrize("path", closure())
def test_nothing_newer_than_python_39(path: str) -> None:
    source = (PLUGINS / path).read_text(encoding="utf-8")
    assert list(newer_names(path, source)) == []
    assert "from __future__ import annotations" in source or not ast.parse(source).body[1:]
