# SPDX-License-Identifier: Apache-2.0
"""The queue of a cluster: the jobs that wait for resources, in the order in which they are started.

By priority, then by submission. A job that fits may pass those before it that do not. Once one of these has waited for
its `queue_patience`, no further job passes it, so that what becomes free adds up.

The steward keeps the queue in a file of the registry, which only the head sees: a submission asks it, too.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..evidence.evidence import is_of
from ..io.reading import MIB, UnreadableError, read_json
from ..io.schema import MalformedError, parse
from ..io.writing import write_text
from .capacity import capacity_problem, reserve
from .demand import Demand, Limit, exclusive_problem
from .room import Room, list_active

# The file in the registry. No job id begins with a dot.
QUEUE_FILE = ".queue.json"
MAX_FILE_BYTES = 16 * MIB
# A job whose steward hangs, on a shared root for example, delays no other one.
MAX_SILENCE_SECONDS = 60.0
MAX_NAMED = 3


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits. Times are in seconds since the epoch.

    since: when it began to wait. patience: for how many seconds others may pass it; None: always.
    waits_for: a condition other than resources. limits: of the jobs with one of its tags.
    """

    submission_id: str
    demand: Demand
    priority: int = 0
    submitted_at: float = 0.0
    since: float = 0.0
    patience: float | None = None
    waits_for: str = ""
    limits: tuple[Limit, ...] = ()

    @property
    def order(self) -> tuple[float, float, str]:
        return -self.priority, self.submitted_at, self.submission_id

    def problem_beside(self, jobs: Iterable[Mapping[str, Any]]) -> str:
        """Why the job may not start, regardless of free resources, or ""."""
        others = [job for job in jobs if not is_of(self.submission_id, job)]
        limited = (limit.problem(self.demand, others) for limit in self.limits)
        return next(filter(None, limited), "") or exclusive_problem(self.demand, others)


@dataclass(frozen=True)
class Turn:
    """Whether it is a job's turn.

    place: in the queue, from 1; None for a job that waits for another one. problem: why the job cannot start now, or
    "". before: the jobs before it.
    """

    place: int | None
    problem: str
    before: tuple[str, ...] = field(default=(), compare=False)

    @property
    def notice(self) -> str:
        """What the job waits for, for people."""
        names = f"{', '.join(self.before[:MAX_NAMED])}{'…' * (len(self.before) > MAX_NAMED)}"
        before = f"; before it: {names}" if self.before else ""
        return f"waits{':' * (self.place is not None)} {self.problem}{before}" if self.problem else ""


def turn(
    queue: Iterable[WaitingJob], job: WaitingJob, room: Room, active_jobs: Iterable[Mapping[str, Any]], now: float
) -> Turn:
    """Whether a job may start now. active_jobs: Ray's records at this moment."""
    if job.waits_for:
        return Turn(None, job.waits_for)
    before = sorted((one for one in queue if not one.waits_for and one.order < job.order), key=lambda one: one.order)
    names, jobs = tuple(one.submission_id for one in before), list_active(active_jobs)

    def answer(problem: str) -> Turn:
        return Turn(len(before) + 1, problem, before=names)

    if problem := job.problem_beside(jobs) or room.problem(job.submission_id, job.demand, jobs):
        return answer(problem)
    remaining, starting = room.remaining_workers(jobs), []
    whole = [replace(worker, free_gpus=worker.gpus, free_cpus=worker.cpus) for worker in room.workers]
    for one in before:
        if one.problem_beside(jobs):
            continue
        if not capacity_problem(remaining, one.demand):
            remaining = reserve(remaining, [one.demand])
            starting.append(one.submission_id)
        # While a node is missing, nothing is reserved for a job that would not fit the empty cluster.
        elif one.patience and now - one.since > one.patience and not capacity_problem(whole, one.demand):
            return answer(f"room is kept for {one.submission_id}, which others have passed for long")
    problem = capacity_problem(remaining, job.demand)
    return answer(f"{problem}, once {', '.join(starting[:MAX_NAMED])} has started" if problem else "")


class Queue:
    """The queue as the steward has it, whose threads each add and remove one job.

    It begins as the steward before left it: no job may pass another one while the jobs are found again.
    """

    def __init__(self, directory: str | Path) -> None:
        """directory: the registry."""
        self.directory = Path(directory)
        self.waiting = {job.submission_id: job for job in read_queue(directory)}
        self.seen = dict.fromkeys(self.waiting, time.monotonic())
        self.lock = threading.Lock()

    def put(self, job: WaitingJob) -> None:
        with self.lock:
            self.seen[job.submission_id] = time.monotonic()
            if self.waiting.get(job.submission_id) != job:
                self.waiting[job.submission_id] = job
                self.store()

    def remove(self, submission_id: str) -> None:
        with self.lock:
            if self.waiting.pop(submission_id, None):
                self.store()

    def jobs(self) -> list[WaitingJob]:
        oldest = time.monotonic() - MAX_SILENCE_SECONDS
        with self.lock:
            return [job for name, job in self.waiting.items() if self.seen[name] > oldest]

    def store(self) -> None:
        # Only the head has a registry.
        if not self.directory.is_dir():
            return
        with contextlib.suppress(OSError):
            write_text(self.directory / QUEUE_FILE, json.dumps([asdict(job) for job in self.waiting.values()]))


def read_queue(directory: str | Path) -> Sequence[WaitingJob]:
    """The queue in the registry; empty without one."""
    with contextlib.suppress(OSError, UnreadableError, MalformedError, TypeError):
        return [parse(WaitingJob, entry) for entry in read_json(Path(directory) / QUEUE_FILE, MAX_FILE_BYTES)]
    return []
