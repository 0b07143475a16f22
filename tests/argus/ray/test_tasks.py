"""Functions that run on chosen nodes; Ray is a fake."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from argus.archive.program import CURRENT_LINK, DEFAULT_DIRECTORY
from argus.ray.tasks import Connection, error_line


class Ray(types.ModuleType):
    """A fake of the package, whose actors run at once."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.begin: Callable[[], None] = lambda: None
        self.by_value: list[types.ModuleType] = []
        self.init_options: dict[str, Any] = {}
        # The options of each actor.
        self.actors: list[dict[str, Any]] = []
        self.get_runtime_context = lambda: types.SimpleNamespace(get_node_id=lambda: "here")
        self.nodes = lambda: [{"NodeID": "n0", "Alive": True}, {"NodeID": "n1", "Alive": False}]

    def init(self, **options: Any) -> None:
        self.init_options = options
        self.begin()

    def remote(self, kind: Callable[[str], Any]) -> Any:
        def options(**how: Any) -> Any:
            self.actors.append(how)
            return types.SimpleNamespace(remote=actor)

        def actor(python_path: str) -> Any:
            one = kind(python_path)

            def call(*arguments: Any) -> Any:
                return types.SimpleNamespace(future=lambda: result_of(one.run, arguments))

            return types.SimpleNamespace(run=types.SimpleNamespace(remote=call))

        return types.SimpleNamespace(options=options)


def result_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
    made: Future[Any] = Future()
    try:
        made.set_result(function(*arguments))
    except HangsError:
        return Future()
    except Exception as error:
        made.set_exception(error)
    return made


class HangsError(Exception):
    """A function does not end."""


def hang() -> None:
    raise HangsError


def fail() -> None:
    raise KeyError("a")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray()
    monkeypatch.setattr(sys, "path", list(sys.path))
    strategies = types.ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node_id, soft: (node_id, soft)  # type: ignore[attr-defined]
    cloudpickle = types.ModuleType("ray.cloudpickle")
    made.cloudpickle = cloudpickle  # type: ignore[attr-defined]
    cloudpickle.register_pickle_by_value = made.by_value.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setitem(sys.modules, "ray.cloudpickle", cloudpickle)
    monkeypatch.setitem(sys.modules, "ray.util", types.ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    return made


def test_a_function_runs_on_its_node_beside_a_job_that_has_all_cpus(ray: Ray) -> None:
    connection = Connection()
    assert connection.problem == ""
    assert [entry["NodeID"] for entry in connection.nodes()] == ["n0"]
    # The actor is pickled with its code, and finds the program with which it imports the function.
    assert [module.__name__ for module in ray.by_value] == ["argus.ray.tasks"]
    assert ray.init_options["address"] == "auto"
    call = connection.start_on("n0", max, 3, 5)
    assert ray.actors[0] == {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": ("n0", False)}
    assert connection.results({"worker-0": call}, 1) == ({"worker-0": 5}, {})
    assert sys.path[1] == f"{DEFAULT_DIRECTORY}/{CURRENT_LINK}"


@pytest.mark.parametrize("hangs", [True, False])
def test_an_actor_that_hangs_or_has_died_does_not_concern_the_next_function_there(ray: Ray, hangs: bool) -> None:
    connection = Connection()
    calls = {"n0": connection.start_on("n0", max, 1, 2), "n1": connection.start_on("n1", hang if hangs else fail)}
    assert list(connection.results(calls, 1)[1]) == ["n1"]
    again = {node: connection.start_on(node, max, 1, 2) for node in ("n0", "n1")}
    assert connection.results(again, 1) == ({"n0": 2, "n1": 2}, {})
    assert [actor["scheduling_strategy"][0] for actor in ray.actors] == ["n0", "n1", "n1"]


def test_on_its_own_node_a_function_runs_in_this_process(ray: Ray) -> None:
    connection = Connection()
    over = threading.Event()
    started = {
        "number": connection.start_on("here", os.getpid),
        "wrong": connection.start_on("here", fail),
        "late": connection.start_on("here", over.wait),
        "elsewhere": connection.start_on("n0", max, 1, 2),
    }
    problems = {"wrong": "KeyError: 'a'", "late": "no answer within 0.5 s"}
    assert connection.results(started, 0.5) == ({"number": os.getpid(), "elsewhere": 2}, problems)
    over.set()
    assert connection.results({"late": started["late"]}, 20) == ({"late": True}, {})
    assert len(ray.actors) == 1


def test_a_head_that_is_gone(ray: Ray) -> None:
    ray.begin = fail
    assert Connection().problem.startswith("Ray cannot be reached: ")


def test_a_node_that_has_just_left_is_a_sentence() -> None:
    error = type("ActorUnschedulableError", (Exception,), {})("It is not schedulable: …")
    assert error_line(error) == "the node has just left the cluster"
