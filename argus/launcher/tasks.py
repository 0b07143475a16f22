# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions run on chosen nodes, in actors of Ray.

The functions travel as values: a node runs the code of the process that asks, and imports nothing from an archive. For
a task, Ray starts a second process on the node that nothing uses, half a second of a CPU; for an actor it does not.
"""

from __future__ import annotations

import functools
import pickle
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

CONNECT_SECONDS = 20
# Ray's errors for an actor or a task on a node that is gone, which Ray did not know yet when it listed the node.
GONE = ("ActorUnschedulableError", "TaskUnschedulableError")


def last_line(error: Exception) -> str:
    """An error in one line; for an error of the function itself, the line after its traceback."""
    if type(error).__name__ in GONE:
        return "the node has just left the cluster"
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1] if 'Traceback' in str(error) else lines[0]}"


class NodeRunner:
    """An actor: a process on a node that calls one function after the other."""

    def run(self, packed: bytes, *arguments: Any) -> Any:
        return pickle.loads(zlib.decompress(packed))(*arguments)  # noqa: S301 - it is what the caller runs


class Connection:
    """A connection to Ray from any node. Its actors need no CPUs: they run beside a job that uses all of them."""

    def __init__(self) -> None:
        self.problem = ""
        self.ray: Any = None
        self.own_node = ""
        # By node id: the actor that runs the next function there.
        self.runners: dict[str, Any] = {}
        self.node_of: dict[Any, str] = {}
        # A function with all modules that travel with it, compressed: Ray sends small values without its object store.
        self.packed: dict[Callable[..., Any], bytes] = {}
        # ray.init waits minutes for a head that is gone.
        thread = threading.Thread(target=self._connect, daemon=True)
        thread.start()
        thread.join(CONNECT_SECONDS)
        if self.ray is None:
            self.problem = self.problem or f"Ray did not answer within {CONNECT_SECONDS} s"

    def _connect(self) -> None:
        try:
            import ray
            import ray.cloudpickle

            ray.cloudpickle.register_pickle_by_value(sys.modules[__package__])
            ray.init(address="auto", log_to_driver=False, logging_level="ERROR", namespace="argus-verl")
        except Exception as error:
            self.problem = f"Ray cannot be reached: {error}"
        else:
            self.own_node = ray.get_runtime_context().get_node_id()
            self.ray = ray

    def nodes(self) -> list[dict[str, Any]]:
        return [entry for entry in self.ray.nodes() if entry["Alive"]]

    def on(self, node_id: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a function on a node; returns a reference to its result."""
        if node_id == self.own_node:
            return in_thread(function, *arguments)
        if node_id not in self.runners:
            self.runners[node_id] = self._runner(node_id)
        if function not in self.packed:
            self.packed[function] = zlib.compress(self.ray.cloudpickle.dumps(function), 1)
        reference = self.runners[node_id].run.remote(self.packed[function], *arguments)
        self.node_of[reference] = node_id
        return reference

    def _runner(self, node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        return self.ray.remote(NodeRunner).options(num_cpus=0, max_restarts=0, scheduling_strategy=strategy).remote()

    def results(self, started: Mapping[str, Any], seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
        """The results that arrive within that time, and why the others are missing; both by name."""
        deadline = time.monotonic() + seconds
        elsewhere = [reference for reference in started.values() if not isinstance(reference, Future)]
        ready = self.ray.wait(elsewhere, num_returns=len(elsewhere), timeout=seconds)[0] if elsewhere else []
        values, problems = {}, {}
        for name, reference in started.items():
            if isinstance(reference, Future):
                there, result = bool(wait([reference], max(0.0, deadline - time.monotonic())).done), reference.result
            else:
                there, result = reference in ready, functools.partial(self.ray.get, reference)
            try:
                if there:
                    values[name] = result()
                else:
                    problems[name] = f"no answer within {seconds} s"
            except Exception as error:
                problems[name] = last_line(error)
            if name in problems:
                # An actor that hangs or has died does not concern the next function there.
                self.runners.pop(self.node_of.get(reference, ""), None)
        return values, problems


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
