# SPDX-License-Identifier: Apache-2.0
"""Reads the curves of a job and of its nodes from its archive, and arranges them in the charts of a page."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from ..archive import metrics
from ..archive.archive import Archive
from ..evidence.hardware import Measurement, Usage
from ..io.reading import MIB, open_file
from ..io.schema import MAX_INTEGER
from ..jobs.progress import TIMED_PARTS, TIMING_PREFIX
from .curves import MAX_POINTS, Curve

# Bytes read of all metrics files of a job together. Of larger files, pieces of PIECE_BYTES are read.
MAX_READ_BYTES, PIECE_BYTES = 768 * MIB, 4 * MIB
# Each attempt writes one metrics file. Those of the last attempts are read.
MAX_FILES = 100
# verl writes about 100 metrics, and those of a validation depend on its data. CHARTED_METRICS do not count.
MAX_METRICS, MAX_NAME_CHARS = 300, 200
STEP_SECONDS = f"{TIMING_PREFIX}step"
# The parts of a step that verl measures, and "other" for the rest of it.
STEP_PARTS = (*(part for part in TIMED_PARTS if part != "step"), "other")
STATISTICS = ("mean", "min", "max")
# The metrics of a chart, by its title.
MetricsByTitle = dict[str, tuple[str, ...]]
# The names are those of verl's trainer/ppo/metric_utils.py and trainer/sft_trainer.py. When jobs are compared, a chart
# shows the first of its metrics that any of them has.
LEARNING: MetricsByTitle = {
    "Reward": tuple(f"critic/rewards/{statistic}" for statistic in STATISTICS),
    "Loss": ("train/loss", "val/loss"),
    "Loss of the actor": ("actor/loss", "actor/pg_loss"),
    "Loss of the critic": ("critic/vf_loss",),
    "KL divergence": ("actor/kl_loss", "actor/reward_kl_penalty", "actor/ppo_kl", "rollout_corr/kl"),
    "Entropy": ("actor/entropy", "actor/entropy_loss"),
    "Length of responses": tuple(f"response_length/{statistic}" for statistic in STATISTICS),
    "Length of prompts": tuple(f"prompt_length/{statistic}" for statistic in STATISTICS),
    "Share of cut texts": ("response_length/clip_ratio", "prompt_length/clip_ratio"),
    "Learning rate": ("actor/lr", "train/lr", "critic/lr"),
    "Norm of the gradient": ("actor/grad_norm", "train/grad_norm", "critic/grad_norm"),
}
THROUGHPUT: MetricsByTitle = {
    "Tokens per second and GPU": ("perf/throughput",),
    "Tokens of a step": ("perf/total_num_tokens", "train/global_tokens"),
    "Model FLOPs utilization": ("perf/mfu/actor", "train/mfu", "perf/mfu/critic", "perf/mfu/actor_infer"),
    "Seconds of a step": (STEP_SECONDS,),
}
CHARTED_METRICS = frozenset(name for names in (*LEARNING.values(), *THROUGHPUT.values()) for name in names)
VALIDATION_PREFIXES, MAX_VALIDATIONS = ("val-core/", "val/"), 12


@dataclass
class JobCurves:
    """The curves of a job, to which the steps of its metrics files are added in order."""

    # By the name of the metric.
    curves: dict[str, Curve] = field(default_factory=dict)
    # The seconds that a part of a step takes, by its name in STEP_PARTS.
    part_seconds: dict[str, Curve] = field(default_factory=lambda: defaultdict(lambda: Curve(is_mean=True)))
    # The seconds from the start of the training to the end of each step. Without points if verl does not measure steps.
    measured_times: Curve = field(default_factory=Curve)
    # What the curves lack, as sentences for the page.
    problems: set[str] = field(default_factory=set)
    elapsed_seconds: float = 0.0

    def add(self, step: metrics.Step) -> None:
        for name, stored in step.metrics.items():
            # verl's file logger writes null for NaN. Most values are floats, and this line runs millions of times.
            value = stored if isinstance(stored, float) else math.nan if stored is None else step.value(name)
            if value is not None and (curve := self.curves.get(name) or self.create_curve(name)):
                curve.add(step.number, value)
        if (step_seconds := step.value(STEP_SECONDS)) is None:
            return
        row = [step.value(f"{TIMING_PREFIX}{part}") or 0.0 for part in STEP_PARTS]
        if all(0 <= value < MAX_INTEGER for value in (step_seconds, *row)):
            self.elapsed_seconds += step_seconds
            self.measured_times.add(step.number, self.elapsed_seconds)
            for part, value in zip(STEP_PARTS, (*row[:-1], max(0.0, step_seconds - sum(row))), strict=True):
                self.part_seconds[part].add(step.number, value)

    def create_curve(self, name: str) -> Curve | None:
        """The new curve of a metric; None if its name is too long, or the job has too many metrics."""
        if name in CHARTED_METRICS or (len(self.curves) < MAX_METRICS and len(name) <= MAX_NAME_CHARS):
            return self.curves.setdefault(name, Curve())
        self.problems.add("It has too many metrics, or too long names of metrics: some are left out.")
        return None

    def step_times(self, job_seconds: float | None) -> Curve:
        """The seconds to each step; if verl does not measure them, as in SFT, the job's duration over its steps."""
        steps = [curve.steps[place] for curve in self.curves.values() for place in (0, -1)]
        if self.measured_times.steps or not steps or job_seconds is None or min(steps) == max(steps):
            return self.measured_times
        return Curve([min(steps), max(steps)], [0.0, job_seconds])


def read_curves(archive: Archive, start_times: Mapping[int, float]) -> JobCurves:
    """All curves of a job. start_times: by attempt. Raises UnreadableError, FileNotFoundError and OSError."""
    curves = JobCurves()
    files = metrics.files(archive.path)[-MAX_FILES:]
    for number, path in enumerate(files, start=1):
        # Time also passes between attempts.
        since_start = start_times.get(number, 0.0) - start_times.get(1, math.inf)
        curves.elapsed_seconds = max(curves.elapsed_seconds, since_start)
        with open_file(path) as file:
            for step in sampled_steps(file, MAX_READ_BYTES // len(files), curves.problems):
                curves.add(step)
    # While they were read, curves kept more points. A page may compare 20 jobs.
    for curve in (*curves.curves.values(), *curves.part_seconds.values(), curves.measured_times):
        curve.steps, curve.values = curve.downsample(MAX_POINTS)
    return curves


def sampled_steps(file: BinaryIO, max_bytes: int, problems: set[str]) -> Iterator[metrics.Step]:
    """The steps in a metrics file; if it is too large, those in evenly spaced pieces of it."""
    size = file.seek(0, os.SEEK_END)
    piece_count = 1 if size <= max_bytes else max_bytes // PIECE_BYTES
    if piece_count > 1:
        problems.add("Its metrics files are very large: parts of them were read, from beginning to end.")
    for number in range(piece_count):
        file.seek(size * number // piece_count)
        yield from metrics.read_steps(file, max_bytes if piece_count == 1 else PIECE_BYTES)


def job_charts(jobs: Sequence[JobCurves]) -> dict[str, MetricsByTitle]:
    """The charts of each section of a page, with the metrics that at least one of the jobs has, in the page's order."""
    names = sorted({name for job in jobs for name in job.curves})

    def charts_with_data(charts: MetricsByTitle) -> MetricsByTitle:
        by_title = {title: tuple(name for name in chart if name in names) for title, chart in charts.items()}
        return {title: chart[:1] if len(jobs) > 1 else chart for title, chart in by_title.items() if chart}

    main_charts = charts_with_data(LEARNING), charts_with_data(THROUGHPUT)
    others = [name for name in names if not any(name in chart for charts in main_charts for chart in charts.values())]
    validations = [name for name in others if name.startswith(VALIDATION_PREFIXES)][:MAX_VALIDATIONS]
    return {
        "Learning": main_charts[0],
        "Validation": {name: (name,) for name in validations},
        "Throughput": main_charts[1],
        "More metrics": {name: (name,) for name in others if name not in validations},
    }


# The charts of a job's nodes: how they used GPUs, CPUs, memory, disk and network.

# With more nodes than this, a chart has their mean, minimum and maximum.
MAX_NODE_CURVES = 8
GB, MB = 1e9, 1e6
MEMORY, GPU_MEMORY = "Memory, GB", "Memory of the fullest GPU, GB"
# Curves by the name of the node, by the title of the chart.
NodeCharts = dict[str, dict[str, Curve]]


def reduce_values(values: Iterable[float | None], function: Callable[[list[float]], float]) -> float | None:
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
