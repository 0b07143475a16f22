# SPDX-License-Identifier: Apache-2.0
"""The queue of a cluster: the jobs that wait for resources, in the order in which they are started.

Jobs start by priority, then in the order of their submission. A job that fits may pass those before it that do not.
Once one of these has waited for its `queue_patience`, no further job passes it, so that resources that become free add
up for it.

The steward keeps the queue in a file of the registry, a directory of the head, where submissions read it, too.
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

from ..evidence.evidence import is_attempt_of
from ..io.reading import MIB, UnreadableError, read_json
from ..io.schema import MalformedError, parse
from ..io.writing import write_text
from .demand import Demand, Limit, capacity_problem, exclusive_problem, reserve
from .room import Room, list_active

# The file in the registry. No job id begins with a dot.
QUEUE_FILE = ".queue.json"
MAX_FILE_BYTES = 16 * MIB
# A job that was not put into the queue again for this long does not count: its thread hangs, perhaps on a shared root.
MAX_SILENCE_SECONDS = 60.0
# The maximum number of other jobs that a text names.
MAX_NAMED_JOBS = 3


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits. Times are in seconds since the epoch."""

    submission_id: str
    demand: Demand
    # Jobs with a higher priority come first.
    priority: int = 0
    submitted_at: float = 0.0
    since: float = 0.0  # when the job began to wait
    patience: float | None = None  # for how many seconds others may pass the job; None for ever
    waits_for: str = ""  # what the job waits for, other than resources; "" for nothing
    limits: tuple[Limit, ...] = ()  # the limits of its tags

    @property
    def order(self) -> tuple[float, float, str]:
        return -self.priority, self.submitted_at, self.submission_id

    def problem_beside(self, jobs: Iterable[Mapping[str, Any]]) -> str:
        """Why the job may not start, regardless of free resources, or ""."""
        others = [job for job in jobs if not is_attempt_of(self.submission_id, job)]
        limited = (limit.problem(self.demand, others) for limit in self.limits)
        return next(filter(None, limited), "") or exclusive_problem(self.demand, others)


@dataclass(frozen=True)
class Turn:
    """Whether it is a job's turn: it may start if there is no problem."""

    place: int | None  # the place in the queue, from 1; None for a job that waits for something other than resources
    problem: str  # why the job cannot start now, or ""
    before: tuple[str, ...] = field(default=(), compare=False)  # the ids of the jobs before it in the queue

    @property
    def notice(self) -> str:
        """A text for people on what the job waits for, or ""."""
        names = f"{', '.join(self.before[:MAX_NAMED_JOBS])}{'…' * (len(self.before) > MAX_NAMED_JOBS)}"
        before = f"; before it: {names}" if self.before else ""
        return f"waits{':' * (self.place is not None)} {self.problem}{before}" if self.problem else ""


def find_turn(
    queue: Iterable[WaitingJob], job: WaitingJob, room: Room, active_jobs: Iterable[Mapping[str, Any]], now: float
) -> Turn:
    """Whether it is a job's turn now. queue: all jobs that wait. active_jobs: Ray's records at this moment."""
    if job.waits_for:
        return Turn(None, job.waits_for)
    before = sorted((one for one in queue if not one.waits_for and one.order < job.order), key=lambda one: one.order)
    names, jobs = tuple(one.submission_id for one in before), list_active(active_jobs)

    def turn(problem: str) -> Turn:
        return Turn(len(before) + 1, problem, before=names)

    if problem := job.problem_beside(jobs) or room.problem(job.submission_id, job.demand, jobs):
        return turn(problem)
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
            return turn(f"room is kept for {one.submission_id}, which others have passed for long")
    problem = capacity_problem(remaining, job.demand)
    return turn(f"{problem}, once {', '.join(starting[:MAX_NAMED_JOBS])} has started" if problem else "")


class Queue:
    """The queue of the steward, in which the thread of each job puts and removes its job.

    It begins as the previous steward left it, so that no job passes another one before all threads have put theirs.
    """

    def __init__(self, directory: str | Path) -> None:
        """directory: the registry."""
        self.directory = Path(directory)
        self.waiting = {job.submission_id: job for job in read_queue(directory)}
        # When each job was last put, by the monotonic clock.
        self.put_at = dict.fromkeys(self.waiting, time.monotonic())
        self.lock = threading.Lock()

    def put(self, job: WaitingJob) -> None:
        """Add a job or say that it still waits."""
        with self.lock:
            self.put_at[job.submission_id] = time.monotonic()
            if self.waiting.get(job.submission_id) != job:
                self.waiting[job.submission_id] = job
                self.store()

    def remove(self, submission_id: str) -> None:
        with self.lock:
            if self.waiting.pop(submission_id, None):
                self.store()

    def jobs(self) -> list[WaitingJob]:
        """The jobs that wait, without those that were not put for MAX_SILENCE_SECONDS."""
        oldest = time.monotonic() - MAX_SILENCE_SECONDS
        with self.lock:
            return [job for name, job in self.waiting.items() if self.put_at[name] > oldest]

    def store(self) -> None:
        # Only the head has a registry.
        if not self.directory.is_dir():
            return
        with contextlib.suppress(OSError):
            write_text(self.directory / QUEUE_FILE, json.dumps([asdict(job) for job in self.waiting.values()]))


def read_queue(directory: str | Path) -> Sequence[WaitingJob]:
    """The queue that the registry has; empty without a registry."""
    with contextlib.suppress(OSError, UnreadableError, MalformedError, TypeError):
        return [parse(WaitingJob, entry) for entry in read_json(Path(directory) / QUEUE_FILE, MAX_FILE_BYTES)]
    return []
