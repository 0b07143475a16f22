# SPDX-License-Identifier: Apache-2.0
"""Functions run on chosen nodes, in actors of Ray.

A node imports the functions from its own file of the program, and nothing from an archive. The file has the caller's
version, or the newest on a node without that version. Actors are used because Ray starts a second, unused process for
a task, which takes half a second of a CPU.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from ..archive.program import Program

CONNECT_TIMEOUT_SECONDS = 20
# Ray's errors for an actor or a task on a node that Ray listed, but that is gone.
GONE = ("ActorUnschedulableError", "TaskUnschedulableError")


def last_line(error: Exception) -> str:
    """An error in one line; for one of a function on another node, that of the function itself."""
    if type(error).__name__ in GONE:
        return "the node has just left the cluster"
    # Ray's own error begins with the process, and has the traceback without its first line.
    error = getattr(error, "cause", None) or error
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


class NodeRunner:
    """An actor: a process on a node that calls one function after the other.

    It travels by value.
    """

    def __init__(self, python_path: str) -> None:
        sys.path[:0] = os.path.expandvars(python_path).split(":")

    def run(self, call: bytes) -> Any:
        function, arguments = pickle.loads(call)  # noqa: S301 - it is what the caller runs
        return function(*arguments)


class Connection:
    """A connection to Ray from any node. Its actors need no CPUs: they run beside a job that uses all of them."""

    def __init__(self) -> None:
        self.problem = ""
        self.ray: Any = None
        self.local_node = ""
        # The actor that runs the next function, by node id.
        self.runners: dict[str, Any] = {}
        self.node_of: dict[Future[Any], str] = {}
        # ray.init waits minutes for a head that is gone.
        thread = threading.Thread(target=self._connect, daemon=True)
        thread.start()
        thread.join(CONNECT_TIMEOUT_SECONDS)
        if self.ray is None:
            self.problem = self.problem or f"Ray did not answer within {CONNECT_TIMEOUT_SECONDS} s"

    def _connect(self) -> None:
        try:
            import ray
            import ray.cloudpickle

            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            ray.init(address="auto", log_to_driver=False, logging_level="ERROR", namespace="argus-verl")
        except Exception as error:
            self.problem = f"Ray cannot be reached: {error}"
        else:
            self.local_node = ray.get_runtime_context().get_node_id()
            self.ray = ray

    def nodes(self) -> list[dict[str, Any]]:
        return [entry for entry in self.ray.nodes() if entry["Alive"]]

    def on(self, node_id: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a function on a node."""
        if node_id == self.local_node:
            return in_thread(function, *arguments)
        if node_id not in self.runners:
            self.runners[node_id] = self._runner(node_id)
        # Not as arguments of the call: Ray would read them before the actor can import their classes.
        future: Future[Any] = self.runners[node_id].run.remote(pickle.dumps((function, arguments))).future()
        self.node_of[future] = node_id
        return future

    def _runner(self, node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        actor = self.ray.remote(NodeRunner).options(num_cpus=0, max_restarts=0, scheduling_strategy=strategy)
        return actor.remote(Program.of_this_process().python_path)

    def results(self, started: Mapping[str, Future[Any]], seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
        """The results that arrive within that time, and why the others are missing; both by name."""
        done = wait(started.values(), seconds).done
        values, problems = {}, {}
        for name, future in started.items():
            try:
                if future in done:
                    values[name] = future.result()
                else:
                    problems[name] = f"no answer within {seconds} s"
            except Exception as error:
                problems[name] = last_line(error)
            if name in problems:
                # An actor that hangs or has died does not concern the next function there.
                self.runners.pop(self.node_of.get(future, ""), None)
        return values, problems


def free_port(address: str) -> int:
    """A port of this node, at one of its addresses, on which a process can listen."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.bind((address, 0))
        return int(listener.getsockname()[1])


def in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Run a function in a thread for which the end of this process does not wait."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future
