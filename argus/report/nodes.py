# SPDX-License-Identifier: GPL-3.0-or-later
"""What the nodes of a job used, as curves over the seconds since it was first measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ..evidence.hardware import Measured, Usage
from .points import Curve

# A curve for each node; of more nodes, the mean, the least and the most of all.
MOST_CURVES = 8
GB, MB = 1e9, 1e6
MEMORY, GPU_MEMORY = "Memory, GB", "Memory of the fullest GPU, GB"
NodeCharts = dict[str, dict[str, Curve]]


def of_gpus(values: Iterable[float | None], of: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return of(known) if known else None


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


# By title: the value of a node.
CHARTS: Mapping[str, Callable[[Usage], float | None]] = {
    "GPUs in use, %": lambda node: of_gpus((gpu.percent for gpu in node.gpus), mean),
    GPU_MEMORY: lambda node: scaled(of_gpus((gpu.memory for gpu in node.gpus), max), GB),
    "Power of the GPUs, W": lambda node: of_gpus((gpu.power for gpu in node.gpus), math.fsum),
    "Hottest GPU, °C": lambda node: of_gpus((gpu.temperature for gpu in node.gpus), max),
    "CPUs in use, %": lambda node: node.cpu,
    MEMORY: lambda node: scaled(node.memory, GB),
    "Shared memory, GB": lambda node: scaled(node.shm, GB),
    "Free disk, GB": lambda node: scaled(node.disk_free, GB),
    "Network, MB/s": lambda node: (
        scaled((node.sent or 0) + (node.received or 0), MB) if node.sent is not None else None
    ),
}


def node_charts(measured: Iterable[Measured]) -> NodeCharts:
    """By title and node. Of a title for which nothing was measured, there is no chart."""
    charts: NodeCharts = {title: defaultdict(Curve) for title in CHARTS}
    begin: float | None = None
    for each in measured:
        begin = each.time if begin is None else begin
        for title, value_of in CHARTS.items():
            values = {name: value for name, node in each.nodes.items() if (value := value_of(node)) is not None}
            if len(values) > MOST_CURVES:
                numbers = list(values.values())
                values = {"nodes/mean": mean(numbers), "nodes/min": min(numbers), "nodes/max": max(numbers)}
            for name, value in values.items():
                charts[title][name].add(int(each.time - begin), value)
    return {title: dict(curves) for title, curves in charts.items() if curves}
