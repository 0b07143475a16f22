# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions run on chosen nodes, as Ray tasks.

The functions travel with the task: a node runs the code of the process that asks, and imports nothing from an archive.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

CONNECT_SECONDS = 20
# Ray's error for a task on a node that is gone, which Ray did not know yet when it listed the node.
GONE = "TaskUnschedulableError"


def last_line(error: Exception) -> str:
    """An error in one line; for an error of the function itself, the line after its traceback."""
    if type(error).__name__ == GONE:
        return "the node has just left the cluster"
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1] if 'Traceback' in str(error) else lines[0]}"


class Connection:
    """A connection to Ray from any node. Its tasks need no CPUs: they run beside a job that uses all of them."""

    def __init__(self) -> None:
        self.problem = ""
        self.ray: Any = None
        # Ray pickles a function, with all modules that travel with it, once for each remote function.
        self.remote: dict[Callable[..., Any], Any] = {}
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
            self.ray = ray

    def nodes(self) -> list[dict[str, Any]]:
        return [entry for entry in self.ray.nodes() if entry["Alive"]]

    def on(self, node_id: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a function on a node; returns a reference to its result."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        if function not in self.remote:
            self.remote[function] = self.ray.remote(function)
        task = self.remote[function].options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
        return task.remote(*arguments)

    def results(self, started: Mapping[str, Any], seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
        """The results that arrive within that time, and why the others are missing; both by name."""
        ready, _waiting = self.ray.wait(list(started.values()), num_returns=len(started), timeout=seconds)
        values, problems = {}, {}
        for name, reference in started.items():
            if reference not in ready:
                problems[name] = f"no answer within {seconds} s"
                continue
            try:
                values[name] = self.ray.get(reference)
            except Exception as error:
                problems[name] = last_line(error)
        return values, problems
