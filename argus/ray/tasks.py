# SPDX-License-Identifier: Apache-2.0
"""Runs functions on chosen nodes, in actors of Ray.

A node imports the functions from its own file of the program, and nothing from an archive. The file has the version of
the caller, or the newest one on a node without that version. They run in actors, because for a task Ray would start a
second, unused process, which takes half a second of a CPU.
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
# Ray's errors for an actor or a task on a node that Ray listed and that has left.
NODE_GONE_ERRORS = ("ActorUnschedulableError", "TaskUnschedulableError")


def error_line(error: Exception) -> str:
    """An error as one line of text. An error of a function on another node is shown without Ray's error around it."""
    if type(error).__name__ in NODE_GONE_ERRORS:
        return "the node has just left the cluster"
    # Ray's error would begin with the process, and go on with a part of the traceback.
    error = getattr(error, "cause", None) or error
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


class NodeRunner:
    """An actor: a process on a node that calls one function after the other. Ray sends its class there by value."""

    def __init__(self, python_path: str) -> None:
        sys.path[:0] = os.path.expandvars(python_path).split(":")

    def run(self, call: bytes) -> Any:
        function, arguments = pickle.loads(call)  # noqa: S301 - the caller pickled it
        return function(*arguments)


class Connection:
    """A connection to Ray from any node. Its actors need no CPUs: they run beside a job that uses all of them."""

    def __init__(self) -> None:
        # Why there is no connection, or "".
        self.problem = ""
        self.ray: Any = None
        # Ray's id of the node of this process.
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
        """The nodes that are alive, as ray.nodes() lists them."""
        return [entry for entry in self.ray.nodes() if entry["Alive"]]

    def start_on(self, node_id: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a function on a node, in this process if it is the node of this process."""
        if node_id == self.local_node:
            return start_in_thread(function, *arguments)
        if node_id not in self.runners:
            self.runners[node_id] = self._create_runner(node_id)
        # Pickled here: Ray would unpickle arguments of the call before the actor can import their classes.
        future: Future[Any] = self.runners[node_id].run.remote(pickle.dumps((function, arguments))).future()
        self.node_of[future] = node_id
        return future

    def _create_runner(self, node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        actor = self.ray.remote(NodeRunner).options(num_cpus=0, max_restarts=0, scheduling_strategy=strategy)
        return actor.remote(Program.of_this_process().python_path)

    def results(self, started: Mapping[str, Future[Any]], seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
        """The results that arrive within that time, and a text for each missing one; both by the names of `started`."""
        done = wait(started.values(), seconds).done
        values, problems = {}, {}
        for name, future in started.items():
            try:
                if future in done:
                    values[name] = future.result()
                else:
                    problems[name] = f"no answer within {seconds} s"
            except Exception as error:
                problems[name] = error_line(error)
            if name in problems:
                # The actor may hang or have died: the next function on the node gets a new one.
                self.runners.pop(self.node_of.get(future, ""), None)
        return values, problems


def free_port(address: str) -> int:
    """A port on which a process of this node can listen at this address."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.bind((address, 0))
        return int(listener.getsockname()[1])


def start_in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Start a function in a daemon thread, so that this process can end before the function does."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future
