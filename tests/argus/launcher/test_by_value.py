"""What travels to nodes with a call: functions by value, and with them the values that they use."""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from argus.checks.node import check_node
from argus.gate.worker import inspect_job
from argus.launcher import evidence, node, tasks

OURS = "argus."


def names_of(code: types.CodeType) -> set[str]:
    """The names that a function uses, also in the functions within it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return {*code.co_names, *(name for each in inner for name in names_of(each))}


def used_by(value: Any) -> Iterator[Any]:
    """What cloudpickle sends along with a function, a class or a module of ours."""
    if isinstance(value, types.FunctionType):
        yield from (value.__globals__[name] for name in names_of(value.__code__) if name in value.__globals__)
        yield from (cell.cell_contents for cell in value.__closure__ or ())
    elif isinstance(value, (type, types.ModuleType)):
        yield from (each for name, each in vars(value).items() if not name.startswith("__"))
    elif isinstance(value, property):
        yield value.fget


def is_ours(value: Any) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return str(name).startswith(OURS)


def unpicklable(function: Callable[..., Any]) -> list[str]:
    """The values that cannot travel with a function."""
    waiting, seen, found = [("", function)], set(), []
    while waiting:
        path, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (types.FunctionType, type, types.ModuleType)):
            # Those of others are imported there.
            own = used_by(value) if is_ours(value) else ()
            waiting += [(f"{path}.{getattr(value, '__name__', '')}", each) for each in own]
        elif isinstance(value, property):
            waiting += [(path, each) for each in used_by(value)]
        else:
            try:
                pickle.dumps(value)
            except Exception as error:
                found.append(f"{path}: {type(value).__name__}: {error}")
    return found


@pytest.mark.parametrize(
    "function",
    [evidence.collect_head, evidence.ask_head, node.collect, node.sweep, check_node, inspect_job, tasks.NodeRunner],
)
def test_all_that_a_call_needs_can_be_sent(function: Callable[..., Any]) -> None:
    assert unpicklable(function) == []


def test_a_value_that_cannot_be_sent_is_found() -> None:
    from argus.launcher.reading import parse_json

    assert [text for text in unpicklable(parse_json) if "Scanner" in text]
