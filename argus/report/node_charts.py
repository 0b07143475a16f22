# SPDX-License-Identifier: Apache-2.0
"""The charts of a job's nodes: how they used GPUs, CPUs, memory, disk and network, from the job's archive."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ..evidence.hardware import Measurement, Usage
from .curves import Curve

# With more nodes than this, a chart has their mean, minimum and maximum.
MAX_NODE_CURVES = 8
GB, MB = 1e9, 1e6
MEMORY, GPU_MEMORY = "Memory, GB", "Memory of the fullest GPU, GB"
# Curves by the name of the node, by the title of the chart.
NodeCharts = dict[str, dict[str, Curve]]


def reduce_values(values: Iterable[float | None], function: Callable[[list[float]], float]) -> float | None:
    """The function's result for all values that are not None; None if all are."""
    numbers = [value for value in values if value is not None]
    return function(numbers) if numbers else None


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def in_unit(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


# How each chart, by its title, gets the value of a node.
NODE_CHARTS: Mapping[str, Callable[[Usage], float | None]] = {
    "GPUs in use, %": lambda node: reduce_values((gpu.percent for gpu in node.gpus), mean),
    GPU_MEMORY: lambda node: in_unit(reduce_values((gpu.memory for gpu in node.gpus), max), GB),
    "Power of the GPUs, W": lambda node: reduce_values((gpu.power for gpu in node.gpus), math.fsum),
    "Hottest GPU, °C": lambda node: reduce_values((gpu.temperature for gpu in node.gpus), max),
    "CPUs in use, %": lambda node: node.cpu,
    MEMORY: lambda node: in_unit(node.memory, GB),
    "Shared memory, GB": lambda node: in_unit(node.shm, GB),
    "Free disk, GB": lambda node: in_unit(node.disk_free, GB),
    "Network, MB/s": lambda node: (
        in_unit((node.sent or 0) + (node.received or 0), MB) if node.sent is not None else None
    ),
}


def node_charts(measurements: Iterable[Measurement]) -> NodeCharts:
    """The charts that have a measurement. The X axis of their curves is the seconds since the first measurement."""
    charts: NodeCharts = {title: defaultdict(Curve) for title in NODE_CHARTS}
    begin: float | None = None
    for measurement in measurements:
        begin = measurement.time if begin is None else begin
        for title, value_of in NODE_CHARTS.items():
            values = {name: value for name, node in measurement.nodes.items() if (value := value_of(node)) is not None}
            if len(values) > MAX_NODE_CURVES:
                numbers = list(values.values())
                values = {"nodes/mean": mean(numbers), "nodes/min": min(numbers), "nodes/max": max(numbers)}
            for name, value in values.items():
                charts[title][name].add(int(measurement.time - begin), value)
    return {title: dict(curves) for title, curves in charts.items() if curves}
