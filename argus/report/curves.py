# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The curves of a job, from its metrics files, and the charts in which a page shows them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from ..jobs.progress import PARTS, TIMING
from ..launcher import metrics
from ..launcher.archive import Archive
from ..launcher.reading import MIB, open_file
from .points import Curve, Parts, Points

# What is read of all metrics files of a job at most; of larger ones, pieces of this size from beginning to end.
READ_BYTES, PIECE_BYTES = 768 * MIB, 4 * MIB
MOST_FILES = 100
# verl has about 100; those of a validation depend on its data. The metrics of charts are read in any case.
MOST_METRICS, NAME_LENGTH = 300, 200
STEP = f"{TIMING}step"
STEP_PARTS = tuple(part for part in PARTS if part != "step")
# What verl does not measure of a step.
OTHER = "other"


@dataclass(frozen=True)
class Chart:
    """Metrics that belong together. The first is that by which jobs are compared."""

    title: str
    metrics: tuple[str, ...]

    @property
    def is_spread(self) -> bool:
        """Whether these are a mean, the lowest and the highest value of one thing."""
        return [name.rpartition("/")[2] for name in self.metrics] == ["mean", "min", "max"]

    @property
    def source(self) -> str:
        """What the title does not tell."""
        if self.is_spread:
            return self.metrics[0].rpartition("/")[0]
        return self.metrics[0] if len(self.metrics) == 1 and self.metrics[0] != self.title else ""

    def label(self, name: str) -> str:
        return name.rpartition("/")[2] if self.is_spread else name


def spread(title: str, name: str) -> Chart:
    """The mean of a metric with its lowest and highest value."""
    return Chart(title, (f"{name}/mean", f"{name}/min", f"{name}/max"))


# By verl's names, trainer/ppo/metric_utils.py and trainer/sft_trainer.py.
LEARNING = (
    spread("Reward", "critic/rewards"),
    Chart("Loss", ("train/loss", "val/loss")),
    Chart("Loss of the actor", ("actor/loss", "actor/pg_loss")),
    Chart("Loss of the critic", ("critic/vf_loss",)),
    Chart("KL divergence", ("actor/kl_loss", "actor/reward_kl_penalty", "actor/ppo_kl", "rollout_corr/kl")),
    Chart("Entropy", ("actor/entropy", "actor/entropy_loss")),
    spread("Length of responses", "response_length"),
    spread("Length of prompts", "prompt_length"),
    Chart("Share of cut texts", ("response_length/clip_ratio", "prompt_length/clip_ratio")),
    Chart("Learning rate", ("actor/lr", "train/lr", "critic/lr")),
    Chart("Norm of the gradient", ("actor/grad_norm", "train/grad_norm", "critic/grad_norm")),
)
THROUGHPUT = (
    Chart("Tokens per second and GPU", ("perf/throughput",)),
    Chart("Tokens of a step", ("perf/total_num_tokens", "train/global_tokens")),
    Chart("Model FLOPs utilization", ("perf/mfu/actor", "train/mfu", "perf/mfu/critic", "perf/mfu/actor_infer")),
    Chart("Seconds of a step", (STEP,)),
)
KNOWN = frozenset(name for chart in (*LEARNING, *THROUGHPUT) for name in chart.metrics)
VALIDATION, MOST_VALIDATIONS = ("val-core/", "val/"), 12


@dataclass
class Curves:
    curves: dict[str, Curve] = field(default_factory=dict)
    parts: Parts = field(default_factory=lambda: Parts((*STEP_PARTS, OTHER)))
    # Seconds of training at each step, as far as verl measures them.
    clock: Curve = field(default_factory=Curve)
    # How many metrics were left out, because there are too many, and whether files were read in pieces.
    left_out: int = 0
    is_sampled: bool = False
    _seconds: float = 0.0

    def add(self, step: metrics.Step) -> None:
        for name, stored in step.metrics.items():
            # The file logger writes null for what is not a number. Most are: this line runs millions of times.
            value = stored if type(stored) is float else math.nan if stored is None else step.value(name)
            if value is not None and (curve := self.curves.get(name) or self._new(name)):
                curve.add(step.step, value)
        whole = step.value(STEP)
        if whole is not None and math.isfinite(whole):
            self._seconds += max(0.0, whole)
            self.clock.add(step.step, self._seconds)
            row = [step.value(f"{TIMING}{part}") or 0.0 for part in STEP_PARTS]
            if all(map(math.isfinite, row)):
                self.parts.add(step.step, (*row, max(0.0, whole - sum(row))))

    def _new(self, name: str) -> Curve | None:
        if name not in KNOWN and (len(self.curves) >= MOST_METRICS or len(name) > NAME_LENGTH):
            self.left_out += 1
            return None
        return self.curves.setdefault(name, Curve())

    def begin_at(self, seconds: float) -> None:
        """An attempt begins so many seconds after the first one."""
        self._seconds = max(self._seconds, seconds)

    def clock_points(self, duration: float | None) -> Points:
        """Seconds at steps; evenly over the duration of the job where verl measures none, as in SFT."""
        if self.clock.steps or duration is None:
            return self.clock.steps, self.clock.values
        steps = [curve.steps[place] for curve in self.curves.values() for place in (0, -1) if curve.steps]
        return ([min(steps), max(steps)], [0.0, duration]) if steps and min(steps) < max(steps) else ([], [])


def read_curves(archive: Archive, starts: Mapping[int, float]) -> Curves:
    """All curves of a job. starts: when attempts began. Raises UnreadableError, FileNotFoundError and OSError."""
    curves = Curves()
    files = metrics.files(archive.path)[-MOST_FILES:]
    first = min(starts.values(), default=0.0)
    for path in files:
        match = metrics.FILE.fullmatch(path.name)
        curves.begin_at(starts.get(int(match["attempt"]) if match else 0, first) - first)
        with open_file(path) as file:
            for step in steps_of(file, READ_BYTES // len(files), curves):
                curves.add(step)
    return curves


def steps_of(file: BinaryIO, limit: int, curves: Curves) -> Iterator[metrics.Step]:
    size = file.seek(0, os.SEEK_END)
    if size <= limit:
        file.seek(0)
        yield from metrics.steps(file, limit)
        return
    curves.is_sampled = True
    pieces = limit // PIECE_BYTES
    for number in range(pieces):
        file.seek(size * number // pieces)
        yield from metrics.steps(file, PIECE_BYTES)


def groups(jobs: list[Curves]) -> dict[str, list[Chart]]:
    """The charts of a page, for the metrics that at least one of the jobs has."""
    names = dict.fromkeys(name for job in jobs for name, curve in job.curves.items() if curve.steps)
    several = len(jobs) > 1

    def present(charts: tuple[Chart, ...]) -> list[Chart]:
        found = [Chart(chart.title, tuple(name for name in chart.metrics if name in names)) for chart in charts]
        return [Chart(chart.title, chart.metrics[:1] if several else chart.metrics) for chart in found if chart.metrics]

    learning, throughput = present(LEARNING), present(THROUGHPUT)
    shown = {name for chart in (*learning, *throughput) for name in chart.metrics}
    validation = [name for name in sorted(names) if name.startswith(VALIDATION) and name not in shown]
    shown |= set(validation[:MOST_VALIDATIONS])
    return {
        "Learning": learning,
        "Validation": [Chart(name, (name,)) for name in validation[:MOST_VALIDATIONS]],
        "Throughput": throughput,
        "More metrics": [Chart(name, (name,)) for name in sorted(names) if name not in shown],
    }
