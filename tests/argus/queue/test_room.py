"""Whether there is room for a job: what is free, what was just accepted, and what only one job can have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from argus.archive.plan import Plan, Pool
from argus.queue.demand import DEMAND_KEY, Demand, Limit, capacity_problem, reserve
from argus.queue.room import UNPLACED_SECONDS, Room, placed_ids
from argus.ray.records import WorkerCapacity

NOW = 10_000.0


def free(*workers: tuple[float, float]) -> list[WorkerCapacity]:
    """By the GPUs and CPUs that are free on each."""
    return [WorkerCapacity(f"worker-{n}", f"n{n}", 8, 48, gpus, cpus) for n, (gpus, cpus) in enumerate(workers)]


def left(workers: list[WorkerCapacity]) -> list[tuple[float, float]]:
    return [(worker.free_gpus, worker.free_cpus) for worker in workers]


def record(name: str, demand: Demand | None, status: str = "RUNNING", age: float = 5.0) -> dict[str, Any]:
    values = {"submission_id": name, "job_id": f"id-{name}", "metadata": demand.to_metadata() if demand else {}}
    return {**values, "status": status, "start_time": (NOW - age) * 1000}


def group(name: str, state: str, *gpus: float) -> dict[str, Any]:
    bundles = [{"unit_resources": {"GPU": count, "CPU": 3.0}} for count in gpus]
    return {"creator_job_id": f"id-{name}", "state": state, "bundles": bundles}


PLAN = Plan(nnodes=2, gpus_per_node=4, cpus_per_node=12, entrypoint_num_cpus=2)
POOL = Pool("rollout", 1, 4, 8)


def test_the_demand_of_a_plan() -> None:
    assert Demand.of(PLAN) == Demand(2, 4, 12, driver_cpus=2)
    demand = Demand(2, 4, 12, pools=(POOL,))
    assert demand.all_gpus == replace(PLAN, pools=(POOL,)).gpus == 12
    assert "needs 12 GPUs" in Limit("team=a", gpus=11).problem(demand, [])
    queue = replace(PLAN, transfer_queue=True, storage_units=8, exclusive_backend="Yuanrong")
    assert Demand.of(queue) == Demand(2, 4, 12, 2, controller_cpus=1, storage_units=8, exclusive="Yuanrong")


def test_the_demand_travels_in_rays_metadata() -> None:
    demand = Demand(2, 4, 12, 1, 1, 8, "Yuanrong", pools=(POOL,))
    assert Demand.from_job(record("a", demand)) == demand
    assert all(isinstance(value, str) for value in demand.to_metadata().values())


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {DEMAND_KEY: None}, {DEMAND_KEY: "no json"}, {DEMAND_KEY: "[]"}, {DEMAND_KEY: '{"nnodes": -1}'}],
)
def test_a_job_of_another_tool_has_no_demand(metadata: Any) -> None:
    assert Demand.from_job({**record("a", None), "metadata": metadata}) is None


DRIVER = "the driver's 1 CPUs are not free"
QUEUE = "the driver's and TransferQueue's 2 CPUs are not free"


@pytest.mark.parametrize(
    ("workers", "sizes", "answer"),
    [
        # (nnodes, GPUs and CPUs on each, CPUs of the driver and of the controller, storage units)
        ([(4, 13)], (1, 4, 12, 1), ""),
        # The driver needs no GPU, only CPUs that the job does not.
        ([(4, 12), (0, 0.5)], (1, 4, 12, 1), DRIVER),
        ([(4, 12), (0, 1)], (1, 4, 12, 1), ""),
        ([(4, 12)], (1, 4, 12, 1), DRIVER),
        # Ray may put the driver on either of them.
        ([(4, 12), (4, 13)], (2, 4, 12, 1), DRIVER),
        # A second worker could take the job, which does not need it.
        ([(4, 12), (4, 12)], (1, 4, 12, 1), ""),
        ([(4, 12), (3, 48)], (2, 4, 12, 1), "available: 1 (worker-0: 4 GPU, 12 CPU, worker-1: 3 GPU, 48 CPU)"),
        ([(4, 11.5)], (1, 4, 12, 1), "available: 0 (worker-0: 4 GPU, 11.5 CPU)"),
        # The controller needs a CPU as well.
        ([(4, 13)], (1, 4, 12, 1, 1), QUEUE),
        # Driver and controller may be on two workers, and the job needs a third one.
        ([(4, 13), (4, 13)], (1, 4, 12, 1, 1), QUEUE),
        ([(4, 12), (0, 2)], (1, 4, 12, 1, 1), ""),
        # Storage units are on every worker, also on those that the job does not use.
        ([(4, 18), (4, 18)], (2, 4, 12, 1, 1, 8), ""),
        ([(4, 17), (4, 18)], (2, 4, 12, 1, 1, 8), QUEUE),
        ([(4, 48), (0, 3)], (1, 4, 12, 1, 1, 8), "available: worker-1: 3 CPU"),
        ([(4, 15), (0, 4)], (1, 4, 12, 1, 1, 8), "available: 0 (worker-0: 4 GPU, 15 CPU, worker-1: 0 GPU, 4 CPU)"),
    ],
)
def test_whether_a_job_has_capacity(workers: list[tuple[float, float]], sizes: tuple[Any, ...], answer: str) -> None:
    problem = capacity_problem(free(*workers), Demand(*sizes))
    assert answer in problem if answer else problem == ""


def test_whether_a_job_with_a_pool_has_capacity() -> None:
    demand = Demand(1, 4, 12, 1, pools=(POOL,))
    # On one worker with those of the trainer, or on another one.
    assert capacity_problem(free((4, 12), (4, 13)), demand) == capacity_problem(free((8, 21)), demand) == ""
    assert "the pool rollout of the job needs 1 worker" in capacity_problem(free((4, 13)), demand)


def test_an_accepted_job_takes_the_workers_that_it_fills_best() -> None:
    assert left(reserve(free((8, 48), (4, 48)), [Demand(1, 4, 12)])) == [(8, 48), (0, 36)]
    assert left(reserve(free((8, 48), (8, 48)), [Demand(1, 4, 12)])) == [(4, 36), (8, 48)]
    assert left(reserve(free((8, 48), (8, 48)), [Demand(2, 4, 12)] * 2)) == [(0, 24), (0, 24)]


def test_the_driver_and_the_queue_of_an_accepted_job() -> None:
    demand = Demand(1, 4, 12, driver_cpus=2, controller_cpus=1, storage_units=3)
    # Two units on each; the job on the first; the driver and the controller where most CPUs are free.
    assert left(reserve(free((8, 48), (8, 48)), [demand])) == [(4, 34), (8, 43)]


ROOM = Room(tuple(free((4, 48), (4, 48))))
ONE, BOTH, DRIVER = Demand(1, 4, 12, 1), Demand(2, 4, 12, 1), Demand(driver_cpus=1, driver_gpus=4)


@pytest.mark.parametrize(
    ("jobs", "demand", "taken"),
    [
        ([record("a", ONE)], BOTH, ("a",)),
        ([record("a", DRIVER, "PENDING")], BOTH, ("a",)),
        ([record("a", ONE), record("b", DRIVER)], DRIVER, ("a", "b")),
        ([record("a", ONE)], ONE, ()),
        ([record("a", replace(ONE, pools=(POOL,)))], ONE, ("a",)),
        # In the order of their submission.
        ([record("b", ONE, age=9), record("a", ONE)], ONE, ("b", "a")),
        ([record("a", ONE, "SUCCEEDED"), record("b", ONE, "FAILED"), record("c", ONE, "STOPPED")], BOTH, ()),
        # A job of another tool, and what the job itself did before.
        ([record("raysubmit_x", None)], BOTH, ()),
        ([record("own", BOTH), record("own~2", BOTH)], BOTH, ()),
    ],
)
def test_what_was_just_accepted_counts_as_taken(jobs: list[Any], demand: Demand, taken: tuple[str, ...]) -> None:
    problem = ROOM.problem("own", demand, jobs)
    assert problem.endswith(f", once {', '.join(taken)} has what it needs") if taken else problem == ""
    # What Ray counts already is not counted twice.
    assert replace(ROOM, placed=frozenset(taken)).problem("own", demand, jobs) == ""


OLD = UNPLACED_SECONDS + 1


@pytest.mark.parametrize(
    ("job", "groups", "has_its_place"),
    [
        (record("a", BOTH), [], False),
        (record("a", BOTH), [group("a", "CREATED", 4), group("a", "CREATED", 4)], True),
        (record("a", BOTH), [group("a", "CREATED", 4), group("a", "PENDING", 4)], False),
        # The trainer has its GPUs, its rollouts have none yet.
        (record("a", replace(BOTH, pools=(POOL,))), [group("a", "CREATED", 4, 4)], False),
        (record("a", replace(BOTH, pools=(POOL,))), [group("a", "CREATED", 4, 4), group("a", "CREATED", 4)], True),
        (record("a", BOTH), [group("b", "CREATED", 4, 4)], False),
        # Without a placement group it has its resources in another way, or does not need them.
        (record("a", BOTH, age=OLD), [], True),
        (record("a", BOTH, age=OLD - 2), [], False),
        (record("a", BOTH, age=OLD), [group("a", "PENDING", 4)], False),
        # A driver that does all the work has what it asked for.
        (record("a", DRIVER), [], True),
        (record("a", DRIVER, "PENDING"), [], False),
    ],
)
def test_which_jobs_have_their_place(job: dict[str, Any], groups: list[Any], has_its_place: bool) -> None:
    assert placed_ids([job], groups, NOW) == ({"a"} if has_its_place else set())


@pytest.mark.parametrize(
    ("backend", "status", "waits"),
    [("MooncakeStore", "RUNNING", True), ("MooncakeStore", "FAILED", False), ("Yuanrong", "RUNNING", False)],
)
def test_a_backend_that_serves_one_job(backend: str, status: str, waits: bool) -> None:
    """Ray's list has the other job, wherever its archive is."""
    demand = Demand(exclusive="MooncakeStore")
    jobs = [record("a", Demand(exclusive=backend), status), record("own~2", demand)]
    assert ("job a is active" in ROOM.problem("own", demand, jobs)) == waits
