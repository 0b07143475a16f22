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
# Names and arguments that came after 3.9.
NEWER = {"StrEnum", "UTC", "Self", "TypeAlias", "ParamSpec", "assert_never", "override", "NoneType", "UnionType"}
NEWER |= {"pairwise", "batched", "chdir", "tomllib", "ExceptionGroup", "strict=", "slots=", "kw_only="}
TYPES = {"None", "bool", "bytes", "dict", "float", "int", "list", "set", "str", "tuple"}
# A table is only printed on the controller.
ONLY_ON_THE_CONTROLLER = {"module_utils/argus/common/text.py": {"strict="}}


def imported(path: str) -> Iterator[str]:
    """The files of the collection that a file imports."""
    for node in ast.walk(ast.parse((PLUGINS / path).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.level or str(node.module).startswith(PACKAGE)):
            continue
        base = PLUGINS.joinpath(*Path(path).parts[: -node.level]) if node.level else PLUGINS
        parts = str(node.module or "").removeprefix(PACKAGE).split(".")
        module = base.joinpath(*filter(None, parts))
        for candidate in (module, *(module / alias.name for alias in node.names)):
            file = candidate.with_suffix(".py")
            if file.is_file():
                yield str(file.relative_to(PLUGINS))


def closure() -> list[str]:
    paths: list[str] = []
    waiting = list(ON_MACHINES)
    while waiting:
        path = waiting.pop()
        if path not in paths:
            paths.append(path)
            waiting += imported(path)
    return sorted(paths)


def newer_names(source: str) -> set[str]:
    """Newer names and arguments, and unions of types outside annotations."""
    tree = ast.parse(source, feature_version=(3, 9))
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for field in ("annotation", "returns")
        if getattr(node, field, None) is not None
        for inner in ast.walk(getattr(node, field))
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            names.add(node.name)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names |= {f"{word.arg}=" for word in node.keywords}
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and id(node) not in annotations:
            names |= {f"{side} |" for side in {ast.unparse(node.left), ast.unparse(node.right)} & TYPES}
    return {name for name in names if name in NEWER or name.endswith(" |")}


def test_all_imports_are_followed() -> None:
    assert {"module_utils/argus/common/text.py", "module_utils/cluster/probe.py"} <= set(closure())
    for newer in ("import datetime\nx = datetime.UTC", "import tomllib", "X = int | None", "zip(a, strict=True)"):
        assert newer_names(newer)
    assert newer_names("def f(a: int | None) -> str | None: ...") == set()
    # These would need more than the standard library of Python 3.9.
    further = [path for path in closure() if path.startswith("module_utils/argus/") and "/common/" not in path]
    assert further == []


@pytest.mark.parametrize("path", closure())
def test_nothing_newer_than_python_39(path: str) -> None:
    source = (PLUGINS / path).read_text(encoding="utf-8")
    assert newer_names(source) <= ONLY_ON_THE_CONTROLLER.get(path, set())
    assert "from __future__ import annotations" in source or not ast.parse(source).body[1:]
