"""The order of jobs that wait, as a pure function and over many random clusters, and the file that has it."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from argus.queue import queue
from argus.queue.queue import Queue, Turn, Waiting, stored, turn
from argus.queue.room import Demand, Limit, Room, reserve
from argus.ray.api import WorkerCapacity

NOW = 10_000.0
# COUNT=10000 SEED=7 pytest … takes a minute.
COUNT, SEED = int(os.environ.get("COUNT", "60")), int(os.environ.get("SEED", "1"))


def room(*gpus: float) -> Room:
    """By the GPUs that are free on each worker."""
    return Room(tuple(WorkerCapacity(f"worker-{n}", f"n{n}", 8, 48, free, 48) for n, free in enumerate(gpus)))


def job(name: str, gpus: float, nnodes: int = 1, **more: Any) -> Waiting:
    return Waiting(name, Demand(nnodes, gpus, 1), **{"submitted_at": NOW - 100, "since": NOW - 100, **more})


def asked(own: Waiting, *others: Waiting, free: Sequence[float] = (8,)) -> Turn:
    return turn([*others, own], own, room(*free), [], NOW)


def test_higher_priorities_and_earlier_submissions_come_first() -> None:
    own = job("b", 8, priority=1)
    assert asked(own, job("a", 8), job("c", 8, priority=1), job("d", 8, submitted_at=NOW - 900)) == Turn(1, "")
    assert asked(own, job("a", 8, priority=2)).place == 2
    assert asked(own, job("z", 8, priority=1, submitted_at=NOW - 101)).place == 2


def test_a_job_waits_for_the_room_of_those_before_it() -> None:
    answer = asked(job("b", 8), job("a", 8))
    assert (answer.place, answer.before) == (2, ("a",))
    assert answer.notice.endswith("once a has started; before it: a")
    assert asked(job("b", 4), job("a", 4)).problem == ""


def test_a_job_that_fits_passes_one_that_does_not_until_its_patience_ends() -> None:
    large = job("a", 8, nnodes=2, patience=100.0)
    late = replace(large, since=NOW - 101)
    assert asked(job("b", 4), large, free=(8, 4)) == Turn(2, "")
    assert asked(job("b", 4), late, free=(8, 4)).problem.startswith("room is kept for a")
    assert asked(job("b", 4), replace(late, patience=None), free=(8, 4)).problem == ""
    # Nor one that depends on another one.
    assert asked(job("a", 1, waits_for="for b to answer")) == Turn(None, "for b to answer")
    assert asked(job("b", 8), job("a", 8, waits_for="for x")) == Turn(1, "")
    # A node is missing: it would not fit an empty cluster.
    assert asked(job("b", 4), late, free=(8,)).problem == ""


def tagged(name: str, gpus: float, *tags: str) -> Waiting:
    """A job of a cluster that allows each user two jobs, and team=a eight GPUs."""
    limits = Limit.of({"user": {"jobs": 2}, "team=a": {"gpus": 8}}, tags)
    return replace(job(name, gpus), demand=Demand(1, gpus, 1, tags=tags), limits=limits)


def test_a_job_waits_for_others_with_its_tag_and_delays_none() -> None:
    taken = [
        {"submission_id": name, "status": "RUNNING", "metadata": Demand(1, 3, 1, tags=tags).to_metadata()}
        for name, tags in (("x", ("user=ann", "team=a")), ("y", ("user=ann",)), ("z", ("user=bob", "team=b")))
    ]
    free = replace(room(8), placed=frozenset("xyz"))

    def problem(own: Waiting, *others: Waiting) -> str:
        return turn([*others, own], own, free, taken, NOW).problem

    assert "jobs with user=ann are active as job_limits allows (2)" in problem(tagged("b", 1, "user=ann"))
    assert problem(tagged("b", 1, "user=bob")) == problem(tagged("b", 1)) == ""
    assert "jobs with team=a hold 3 of the 8" in problem(tagged("b", 6, "team=a"))
    assert problem(tagged("b", 5, "team=a")) == problem(tagged("b", 8, "team=b")) == ""
    # Its own earlier attempt does not count.
    assert problem(tagged("x", 8, "team=a")) == ""
    late = replace(tagged("a", 8, "user=ann"), since=NOW - 999, patience=1.0)
    assert problem(tagged("b", 8), late) == ""


# --- Many random clusters ---------------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """Jobs arrive, wait, run and end, one second after the other."""

    random: random.Random
    workers: list[WorkerCapacity]
    waiting: list[Waiting] = field(default_factory=list)
    # The GPUs on each worker of the jobs that run, and the second in which they end.
    running: dict[str, tuple[list[float], int]] = field(default_factory=dict)
    now: int = 0

    @classmethod
    def of(cls, seed: int) -> Cluster:
        chance = random.Random(seed)  # noqa: S311
        gpus = chance.choice((1, 2, 8))
        workers = [WorkerCapacity(f"worker-{n}", f"n{n}", gpus, 48, gpus, 48) for n in range(chance.randint(1, 4))]
        return cls(chance, workers)

    def free(self) -> list[WorkerCapacity]:
        taken = [sum(gpus) for gpus in zip(*(gpus for gpus, _end in self.running.values()), strict=True)]
        taken = taken or [0] * len(self.workers)
        return [replace(worker, free_gpus=worker.gpus - gpus) for worker, gpus in zip(self.workers, taken, strict=True)]

    def arrive(self) -> None:
        demand = Demand(self.random.randint(1, len(self.workers)), self.random.randint(1, int(self.workers[0].gpus)), 1)
        name, priority = f"job-{self.now}", self.random.choice((0, 0, 0, 5))
        self.waiting.append(Waiting(name, demand, priority, self.now, self.now, patience=20.0))

    def step(self) -> None:
        self.now += 1
        self.running = {name: job for name, job in self.running.items() if job[1] > self.now}
        # The steward's threads ask in any order.
        for own in self.random.sample(self.waiting, len(self.waiting)):
            free = self.free()
            answer = turn(self.waiting, own, Room(tuple(free)), [], self.now)
            if answer.problem:
                assert answer.place > 1 or queue.capacity_problem(free, own.demand), "room that fits the first is idle"
                continue
            self.check_patience(own, free)
            self.waiting.remove(own)
            gpus = [
                before.free_gpus - after.free_gpus
                for before, after in zip(free, reserve(free, [own.demand]), strict=True)
            ]
            assert sorted(gpus, reverse=True)[: own.demand.nnodes] == [own.demand.gpus] * own.demand.nnodes
            self.running[own.submission_id] = (gpus, self.now + self.random.randint(1, 15))
            assert all(worker.free_gpus >= 0 for worker in self.free()), "more is given than there is"

    def check_patience(self, own: Waiting, free: list[WorkerCapacity]) -> None:
        late = [one for one in self.waiting if one.order < own.order and self.now - one.since > 20]
        assert not any(queue.capacity_problem(free, one.demand) for one in late), "a job was passed for too long"


def test_no_random_cluster_starves_a_job_leaves_room_idle_or_gives_more_than_it_has() -> None:
    for number in range(COUNT):
        cluster = Cluster.of(SEED * COUNT + number)
        for _second in range(40):
            if cluster.random.random() < 0.4:
                cluster.arrive()
            cluster.step()
        for _second in range(40 * 16):
            if not cluster.waiting:
                break
            cluster.step()
        assert not cluster.waiting, "a job was never started"


# --- The file ---------------------------------------------------------------------------------------------------------


def test_the_next_steward_and_submissions_know_the_queue(tmp_path: Path) -> None:
    steward = Queue(tmp_path)
    first, second = job("a", 8, patience=60.0), job("b", 4, priority=3, waits_for="for a")
    steward.put(first)
    steward.put(second)
    assert sorted(stored(tmp_path), key=lambda one: one.submission_id) == [first, second]
    assert Queue(tmp_path).jobs() == [first, second]
    steward.remove("a")
    assert stored(tmp_path) == [second]


@pytest.mark.parametrize("damage", ["", "[", "{}", '[{"submission_id": 3}]'])
def test_a_damaged_file_is_an_empty_queue(tmp_path: Path, damage: str) -> None:
    (tmp_path / queue.FILE).write_text(damage)
    assert stored(tmp_path) == []
