"""The order of jobs that wait, and the file that has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from argus.queue import queue
from argus.queue.demand import Demand, Limit
from argus.queue.queue import Queue, Turn, WaitingJob, find_turn, read_queue
from argus.queue.room import Room
from argus.ray.records import WorkerCapacity

NOW = 10_000.0


def room(*gpus: float) -> Room:
    """The room of workers with so many free GPUs each."""
    return Room(tuple(WorkerCapacity(f"worker-{n}", f"n{n}", 8, 48, free, 48) for n, free in enumerate(gpus)))


def job(name: str, gpus: float, nnodes: int = 1, **more: Any) -> WaitingJob:
    return WaitingJob(name, Demand(nnodes, gpus, 1), **{"submitted_at": NOW - 100, "since": NOW - 100, **more})


def turn_of(waiting: WaitingJob, *others: WaitingJob, free: Sequence[float] = (8,)) -> Turn:
    return find_turn([*others, waiting], waiting, room(*free), [], NOW)


def test_higher_priorities_and_earlier_submissions_come_first() -> None:
    waiting = job("b", 8, priority=1)
    assert turn_of(waiting, job("a", 8), job("c", 8, priority=1), job("d", 8, submitted_at=NOW - 900)) == Turn(1, "")
    assert turn_of(waiting, job("a", 8, priority=2)).place == 2
    assert turn_of(waiting, job("z", 8, priority=1, submitted_at=NOW - 101)).place == 2


def test_a_job_waits_for_the_room_of_those_before_it() -> None:
    answer = turn_of(job("b", 8), job("a", 8))
    assert (answer.place, answer.before) == (2, ("a",))
    assert answer.notice.endswith("once a has started; before it: a")
    assert turn_of(job("b", 4), job("a", 4)).problem == ""
    # The GPUs of a job that was just accepted are no longer free.
    accepted = {"submission_id": "x", "status": "RUNNING", "metadata": Demand(1, 4, 1).to_metadata()}
    waiting = job("b", 4)
    assert find_turn([job("a", 4), waiting], waiting, room(8), [accepted], NOW).problem


def test_a_job_that_fits_passes_one_that_does_not_until_its_patience_ends() -> None:
    large = job("a", 8, nnodes=2, patience=100.0)
    late = replace(large, since=NOW - 101)
    assert turn_of(job("b", 4), large, free=(8, 4)) == Turn(2, "")
    assert turn_of(job("b", 4), late, free=(8, 4)).problem.startswith("room is kept for a")
    assert turn_of(job("b", 4), replace(late, patience=None), free=(8, 4)).problem == ""
    # Nor one that depends on another one.
    assert turn_of(job("a", 1, waits_for="for b to answer")) == Turn(None, "for b to answer")
    assert turn_of(job("b", 8), job("a", 8, waits_for="for x")) == Turn(1, "")
    # A node is missing: it would not fit an empty cluster.
    assert turn_of(job("b", 4), late, free=(8,)).problem == ""


def tagged(name: str, gpus: float, *tags: str) -> WaitingJob:
    """A job of a cluster that allows each user two jobs, and team=a eight GPUs."""
    limits = Limit.of({"user": {"jobs": 2}, "team=a": {"gpus": 8}}, tags)
    return replace(job(name, gpus), demand=Demand(1, gpus, 1, tags=tags), limits=limits)


def test_a_job_waits_for_others_with_its_tag_and_delays_none() -> None:
    taken = [
        {"submission_id": name, "status": "RUNNING", "metadata": Demand(1, 3, 1, tags=tags).to_metadata()}
        for name, tags in (("x", ("user=ann", "team=a")), ("y", ("user=ann",)), ("z", ("user=bob", "team=b")))
    ]
    free = replace(room(8), placed=frozenset("xyz"))

    def problem(waiting: WaitingJob, *others: WaitingJob) -> str:
        return find_turn([*others, waiting], waiting, free, taken, NOW).problem

    assert "jobs with user=ann are active as job_limits allows (2)" in problem(tagged("b", 1, "user=ann"))
    assert problem(tagged("b", 1, "user=bob")) == problem(tagged("b", 1)) == ""
    assert "jobs with team=a hold 3 of the 8" in problem(tagged("b", 6, "team=a"))
    assert problem(tagged("b", 5, "team=a")) == problem(tagged("b", 8, "team=b")) == ""
    # Its own earlier attempt does not count.
    assert problem(tagged("x", 8, "team=a")) == ""
    assert problem(tagged("b", 8), replace(tagged("a", 8, "user=ann"), since=NOW - 999, patience=1.0)) == ""


def test_the_next_steward_and_submissions_know_the_queue(tmp_path: Path) -> None:
    steward = Queue(tmp_path)
    first, second = job("a", 8, patience=60.0), job("b", 4, priority=3, waits_for="for a")
    steward.put(first)
    steward.put(second)
    assert sorted(read_queue(tmp_path), key=lambda one: one.submission_id) == [first, second]
    assert Queue(tmp_path).jobs() == [first, second]
    steward.remove("a")
    assert read_queue(tmp_path) == [second]


@pytest.mark.parametrize("damage", ["", "[", "{}", '[{"submission_id": 3}]'])
def test_a_damaged_file_is_an_empty_queue(tmp_path: Path, damage: str) -> None:
    (tmp_path / queue.QUEUE_FILE).write_text(damage)
    assert read_queue(tmp_path) == []
