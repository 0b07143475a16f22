# SPDX-License-Identifier: Apache-2.0
"""Reads the curves of a job and of its nodes, reduced to few points, and arranges them in charts."""

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

# Curves with few points, however long the job was: they are reduced while they are read.

MAX_POINTS = 2000
# How many points a curve may gain before it is reduced again.
SPARE_POINTS = 6 * MAX_POINTS
Points = tuple[list[int], list[float]]


@dataclass
class Curve:
    """The values of one metric over steps. is_mean: downsample by means, so that stacked curves still add up."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    is_mean: bool = False

    def add(self, step: int, value: float) -> None:
        steps, values = self.steps, self.values
        # A later attempt replaces the steps that it repeats.
        while steps and steps[-1] >= step:
            steps.pop()
            values.pop()
        steps.append(step)
        values.append(value)
        if len(steps) > 2 * MAX_POINTS + SPARE_POINTS:
            self.steps, self.values = self.downsample(2 * MAX_POINTS)

    def downsample(self, max_points: int) -> Points:
        """At most this many points: of each equal range of steps its mean, or its extremes and one non-finite value."""
        steps, values = self.steps, self.values
        if len(steps) <= max_points:
            return steps, values
        # With the first and the last point.
        count = max(1, (max_points - 2) // (1 if self.is_mean else 2 if all(map(math.isfinite, values)) else 3))
        width = (steps[-1] - steps[0] + 1) / count
        ranges: list[list[int]] = [[] for _range in range(count)]
        for position, step in enumerate(steps):
            # Float rounding may put the last step past the end.
            ranges[min(int((step - steps[0]) / width), count - 1)].append(position)
        if self.is_mean:
            means = [(steps[span[-1]], math.fsum(values[at] for at in span) / len(span)) for span in ranges if span]
            return [step for step, _mean in means], [mean for _step, mean in means]
        kept = {0, len(steps) - 1}.union(*(extremes(span, values) for span in ranges if span))
        return [steps[at] for at in sorted(kept)], [values[at] for at in sorted(kept)]


def extremes(positions: Sequence[int], values: Sequence[float]) -> set[int]:
    """The positions of the lowest and the highest value, and of one that is not finite."""
    finite = [at for at in positions if math.isfinite(values[at])]
    non_finite = {at for at in positions if not math.isfinite(values[at])} if len(finite) < len(positions) else set()
    kept = {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)} if finite else set()
    return kept | set(sorted(non_finite)[:1])


# The resource use of a job's nodes, as curves over the seconds since the first measurement.

# With more nodes than this, their mean, minimum and maximum are shown.
MAX_NODE_CURVES = 8
GB, MB = 1e9, 1e6
MEMORY, GPU_MEMORY = "Memory, GB", "Memory of the fullest GPU, GB"
NodeCharts = dict[str, dict[str, Curve]]


def aggregate(values: Iterable[float | None], function: Callable[[list[float]], float]) -> float | None:
    numbers = [value for value in values if value is not None]
    return function(numbers) if numbers else None


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def in_unit(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


# The value of a node, by chart title.
NODE_CHARTS: Mapping[str, Callable[[Usage], float | None]] = {
    "GPUs in use, %": lambda node: aggregate((gpu.percent for gpu in node.gpus), mean),
    GPU_MEMORY: lambda node: in_unit(aggregate((gpu.memory for gpu in node.gpus), max), GB),
    "Power of the GPUs, W": lambda node: aggregate((gpu.power for gpu in node.gpus), math.fsum),
    "Hottest GPU, °C": lambda node: aggregate((gpu.temperature for gpu in node.gpus), max),
    "CPUs in use, %": lambda node: node.cpu,
    MEMORY: lambda node: in_unit(node.memory, GB),
    "Shared memory, GB": lambda node: in_unit(node.shm, GB),
    "Free disk, GB": lambda node: in_unit(node.disk_free, GB),
    "Network, MB/s": lambda node: (
        in_unit((node.sent or 0) + (node.received or 0), MB) if node.sent is not None else None
    ),
}


def node_charts(measured: Iterable[Measurement]) -> NodeCharts:
    """The charts by title and node; titles without measurements are left out."""
    charts: NodeCharts = {title: defaultdict(Curve) for title in NODE_CHARTS}
    begin: float | None = None
    for sample in measured:
        begin = sample.time if begin is None else begin
        for title, value_of in NODE_CHARTS.items():
            values = {name: value for name, node in sample.nodes.items() if (value := value_of(node)) is not None}
            if len(values) > MAX_NODE_CURVES:
                numbers = list(values.values())
                values = {"nodes/mean": mean(numbers), "nodes/min": min(numbers), "nodes/max": max(numbers)}
            for name, value in values.items():
                charts[title][name].add(int(sample.time - begin), value)
    return {title: dict(curves) for title, curves in charts.items() if curves}


# The curves of a job, from its metrics files, and the charts in which a page shows them.

# The maximum size read of all metrics files of a job; larger files are sampled in pieces of this size.
MAX_READ_BYTES, PIECE_BYTES, MAX_FILES = 768 * MIB, 4 * MIB, 100
# verl has about 100; those of a validation depend on its data. The metrics of charts are read in any case.
MAX_METRICS, MAX_NAME_CHARS = 300, 200
STEP = f"{TIMING_PREFIX}step"
# "other" is the part of a step that verl does not measure.
STEP_PARTS = (*(part for part in TIMED_PARTS if part != "step"), "other")
STATISTICS = ("mean", "min", "max")
MetricsByTitle = dict[str, tuple[str, ...]]
# Metrics of verl's trainer/ppo/metric_utils.py and trainer/sft_trainer.py. A chart of several jobs has only the first.
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
    "Seconds of a step": (STEP,),
}
CHARTED_METRICS = frozenset(name for names in (*LEARNING.values(), *THROUGHPUT.values()) for name in names)
VALIDATION_PREFIXES, MAX_VALIDATIONS = ("val-core/", "val/"), 12


@dataclass
class JobCurves:
    """clock: seconds of training at each step, as far as verl measures them. problems: the parts that are left out."""

    curves: dict[str, Curve] = field(default_factory=dict)
    part_seconds: dict[str, Curve] = field(default_factory=lambda: defaultdict(lambda: Curve(is_mean=True)))
    clock: Curve = field(default_factory=Curve)
    problems: set[str] = field(default_factory=set)
    elapsed_seconds: float = 0.0

    def add(self, step: metrics.Step) -> None:
        for name, stored in step.metrics.items():
            # The file logger writes null for what is not a number. Most are: this line runs millions of times.
            value = stored if isinstance(stored, float) else math.nan if stored is None else step.value(name)
            if value is not None and (curve := self.curves.get(name) or self.new_curve(name)):
                curve.add(step.number, value)
        if (step_seconds := step.value(STEP)) is None:
            return
        row = [step.value(f"{TIMING_PREFIX}{part}") or 0.0 for part in STEP_PARTS]
        if all(0 <= value < MAX_INTEGER for value in (step_seconds, *row)):
            self.elapsed_seconds += step_seconds
            self.clock.add(step.number, self.elapsed_seconds)
            for part, value in zip(STEP_PARTS, (*row[:-1], max(0.0, step_seconds - sum(row))), strict=True):
                self.part_seconds[part].add(step.number, value)

    def new_curve(self, name: str) -> Curve | None:
        if name in CHARTED_METRICS or (len(self.curves) < MAX_METRICS and len(name) <= MAX_NAME_CHARS):
            return self.curves.setdefault(name, Curve())
        self.problems.add("It has too many metrics, or too long names of metrics: some are left out.")
        return None

    def step_times(self, duration: float | None) -> Curve:
        """The clock; where verl measures no time, as in SFT, the duration of the job over its steps."""
        steps = [curve.steps[place] for curve in self.curves.values() for place in (0, -1)]
        if self.clock.steps or not steps or duration is None or min(steps) == max(steps):
            return self.clock
        return Curve([min(steps), max(steps)], [0.0, duration])


def read_curves(archive: Archive, starts: Mapping[int, float]) -> JobCurves:
    """All curves of a job. starts: when attempts began. Raises UnreadableError, FileNotFoundError and OSError."""
    curves = JobCurves()
    files = metrics.files(archive.path)[-MAX_FILES:]
    for number, path in enumerate(files, start=1):
        # Time also passes between attempts.
        curves.elapsed_seconds = max(curves.elapsed_seconds, starts.get(number, 0.0) - starts.get(1, math.inf))
        with open_file(path) as file:
            for step in steps_of(file, MAX_READ_BYTES // len(files), curves.problems):
                curves.add(step)
    # The final downsampling: a page may show 20 jobs.
    for curve in (*curves.curves.values(), *curves.part_seconds.values(), curves.clock):
        curve.steps, curve.values = curve.downsample(MAX_POINTS)
    return curves


def steps_of(file: BinaryIO, limit: int, problems: set[str]) -> Iterator[metrics.Step]:
    size = file.seek(0, os.SEEK_END)
    pieces = 1 if size <= limit else limit // PIECE_BYTES
    if pieces > 1:
        problems.add("Its metrics files are very large: parts of them were read, from beginning to end.")
    for number in range(pieces):
        file.seek(size * number // pieces)
        yield from metrics.read_steps(file, limit if pieces == 1 else PIECE_BYTES)


def job_charts(jobs: Sequence[JobCurves]) -> dict[str, MetricsByTitle]:
    """The charts of a page by section, for the metrics that at least one of the jobs has."""
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
