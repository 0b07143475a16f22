"""Functions that run on chosen nodes; Ray is a fake."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher import tasks
from ansible_collections.argus.verl.plugins.module_utils.launcher.tasks import Connection, last_line


class Ray(types.ModuleType):
    """A fake of the package."""

    def __init__(self, init: Callable[[], None] = lambda: None) -> None:
        super().__init__("ray")
        self.begin = init
        self.by_value: list[types.ModuleType] = []
        self.cloudpickle = types.ModuleType("ray.cloudpickle")
        self.cloudpickle.register_pickle_by_value = self.by_value.append  # type: ignore[attr-defined]
        self.options: dict[str, Any] = {}

    def init(self, **options: Any) -> None:
        self.options = options
        self.begin()

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "n0", "Alive": True}, {"NodeID": "n1", "Alive": False}]

    def remote(self, function: Callable[..., Any]) -> Any:
        return Task(function)

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        assert num_returns == len(references)
        return [task for task in references if not task.hangs], [task for task in references if task.hangs]

    def get(self, task: Any) -> Any:
        return task.function(*task.arguments)


class Task:
    """A function, and how it is to be run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.arguments: tuple[Any, ...] = ()
        self.how: dict[str, Any] = {}
        self.hangs = False

    def options(self, **how: Any) -> Task:
        self.how = how
        return self

    def remote(self, *arguments: Any) -> Task:
        self.arguments = arguments
        return self


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray()
    strategies = types.ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node_id, soft: (node_id, soft)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setitem(sys.modules, "ray.cloudpickle", made.cloudpickle)
    monkeypatch.setitem(sys.modules, "ray.util", types.ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    return made


def test_a_function_runs_on_its_node_beside_a_job_that_has_all_cpus(ray: Ray) -> None:
    connection = Connection()
    assert connection.problem == ""
    # Its functions are pickled with their code.
    assert [module.__name__ for module in ray.by_value] == [
        "ansible_collections.argus.verl.plugins.module_utils.launcher"
    ]
    assert ray.options["address"] == "auto"
    task = connection.on("n0", max, 3, 5)
    assert task.how == {
        "num_cpus": 0,
        "max_retries": 0,
        "scheduling_strategy": ("n0", False),
    }
    assert connection.results({"worker-0": task}, 1) == ({"worker-0": 5}, {})


def test_only_nodes_that_are_alive(ray: Ray) -> None:
    assert [entry["NodeID"] for entry in Connection().nodes()] == ["n0"]


def test_missing_results_are_reported(ray: Ray) -> None:
    def fail() -> None:
        raise ValueError("Traceback (most recent call last):\n  File x\nKeyError: 'a'")

    connection = Connection()
    late = connection.on("n1", min, 1, 2)
    late.hangs = True
    started = {"one": connection.on("n0", max, 1, 2), "two": connection.on("n0", fail), "three": late}
    assert connection.results(started, 0.5) == (
        {"one": 2},
        {"two": "ValueError: KeyError: 'a'", "three": "no answer within 0.5 s"},
    )


def test_an_image_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert Connection().problem.startswith("Ray cannot be reached: ")


def test_a_head_that_is_gone(ray: Ray) -> None:
    def fail() -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    ray.begin = fail
    assert Connection().problem == "Ray cannot be reached: Could not find any running Ray instance."


def test_a_head_that_does_not_answer(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    ray.begin = lambda: over.wait(30) and None
    monkeypatch.setattr(tasks, "CONNECT_SECONDS", 0.1)
    try:
        assert Connection().problem == "Ray did not answer within 0.1 s"
    finally:
        over.set()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("one\ntwo\n\n"), "ValueError: one"),
        (ValueError("task()\nTraceback (most recent call last):\n  …\nKeyError: 'a'\n"), "ValueError: KeyError: 'a'"),
        (ValueError(""), "ValueError: "),
        (KeyError("a"), "KeyError: 'a'"),
    ],
)
def test_an_error_without_its_traceback(error: Exception, text: str) -> None:
    assert last_line(error) == text


def test_a_node_that_has_just_left_is_a_sentence() -> None:
    class TaskUnschedulableError(Exception):
        """As Ray names it."""

    assert last_line(TaskUnschedulableError("The task is not schedulable: …")) == "the node has just left the cluster"
