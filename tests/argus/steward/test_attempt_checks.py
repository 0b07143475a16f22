"""Ray's records of an attempt that runs: its TransferQueue, and the resources that it waits for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from steward_scene import HEAD, Head, worker

from argus.archive.archive import Heartbeat
from argus.queue.demand import Demand
from argus.steward.attempt_checks import (
    ACTOR_PENDING_SECONDS,
    CHECK_INTERVAL_SECONDS,
    CONTROLLER_GONE_SECONDS,
    UNPLACEABLE_SECONDS,
    AttemptChecks,
)
from argus.steward.decisions import DEFAULT_RESOURCE_WAIT_SECONDS
from argus.steward.placement import find_placement_problem, latest_nodes

BEFORE, TRAINS, DONE = (Heartbeat(step=step, total_steps=10) for step in (0, 3, 10))
GPU, SMALL = ({"CPU": cpus, "GPU": gpus} for cpus, gpus in ((16.0, 8.0), (4.0, 1.0)))
NODES = [{**HEAD, "resources_total": {}}, worker("w0", resources_total=GPU), worker("w1", resources_total=SMALL)]
SEVERAL, OTHERS, GONE = "in several queues", "of another job", "no sample can reach"


def controller(job_id: str = "01", state: str = "ALIVE", name: str = "TransferQueueController") -> dict[str, Any]:
    return {"job_id": job_id, "state": state, "class_name": name, "ray_namespace": "transfer_queue-01"}


def checks() -> tuple[AttemptChecks, Head]:
    head = Head()
    head.controllers = [controller()]
    return AttemptChecks(head, Demand(controller_cpus=1)), head


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ([], ""),
        ([controller()], SEVERAL),
        # Ray keeps dead actors in its list.
        ([controller(state="DEAD"), controller(state="PENDING_CREATION")], ""),
        ([controller("02"), controller(name="TrainingWorker")], ""),
    ],
)
def test_ray_is_asked_now_and_then_for_the_controllers_of_a_job(more: list[dict[str, Any]], problem: str) -> None:
    attempt, head = checks()
    attempt.run("01", BEFORE, NODES, 1000.0)
    head.controllers += more
    attempt.run("01", BEFORE, NODES, 1000.0 + CHECK_INTERVAL_SECONDS - 1)
    assert attempt.transfer_queue_problem == ""
    attempt.run("01", BEFORE, NODES, 1000.0 + CHECK_INTERVAL_SECONDS)
    assert problem in attempt.transfer_queue_problem and bool(problem) == bool(attempt.transfer_queue_problem)


@pytest.mark.parametrize("returns", [False, True])
def test_a_controller_that_is_gone_for_a_while(returns: bool) -> None:
    attempt, head = checks()
    attempt.run("01", TRAINS, NODES, 1000.0)
    head.controllers = []
    for after in (CHECK_INTERVAL_SECONDS, CHECK_INTERVAL_SECONDS + CONTROLLER_GONE_SECONDS - 1):
        attempt.run("01", TRAINS, NODES, 1000.0 + after)
        assert attempt.transfer_queue_problem == ""
    head.controllers = [controller()] * returns
    attempt.run("01", TRAINS, NODES, 1000.0 + 2 * CHECK_INTERVAL_SECONDS + CONTROLLER_GONE_SECONDS)
    assert (GONE in attempt.transfer_queue_problem) is not returns
    later = 1000.0 + 3 * CHECK_INTERVAL_SECONDS + CONTROLLER_GONE_SECONDS
    attempt.run("01", Heartbeat(step=4, total_steps=10), NODES, later)
    assert (OTHERS in attempt.transfer_queue_problem) is not returns


def actor(state: str, name: str = "", cause: Any = None, **resources: float) -> dict[str, Any]:
    values = {"job_id": "01", "class_name": "vLLMHttpServer", "pid": 7}
    return {**values, "state": state, "name": name, "death_cause": cause, "required_resources": resources}


NOW = 1000.0 + DEFAULT_RESOURCE_WAIT_SECONDS
LARGE = {"CPU": 2.0, "GPU": 16.0}


def large(state: str = "ALIVE", name: str = "w9", **details: Any) -> dict[str, Any]:
    """A node that could hold what the others cannot."""
    return worker(name, state, resources_total={"CPU": 64.0, "GPU": 64.0}, **details)


@pytest.mark.parametrize(
    ("needs", "more", "problem"),
    [
        (LARGE, [], "actor vLLMHttpServer needs 2 CPU and 16 GPU on one node, and the nearest, worker-w0, has 16 CPU"),
        # Each of them is somewhere, but not on one node; and a resource that no node has.
        ({"GPU": 8.0, "disk": 1.0}, [worker("w2", resources_total={"disk": 9.0})], "the nearest, worker-w2, has 0 GPU"),
        # A node that has just died may come back; one that died long ago was removed.
        (LARGE, [large("DEAD", end_time_ms=1001_000)], ""),
        (LARGE, [large("DEAD", end_time_ms=999_000)], "16 GPU on one node"),
        # One that came back smaller than it was, and one that came back larger.
        (LARGE, [large("DEAD", "w1", end_time_ms=NOW * 1000, start_time_ms=-1)], "16 GPU on one node"),
        (LARGE, [large(draining=True)], ""),
        # Resources of a placement group, of a node with a new address, and one that Ray has counted wrongly.
        ({"GPU_group_0_1a": 9.0, "bundle_group_1a": 0.001}, [], ""),
        ({"CPU": 1.0, "node:10.0.0.7": 0.001, "memory": -1.0}, [], ""),
    ],
)
def test_an_actor_that_no_node_can_hold(needs: dict[str, float], more: list[dict[str, Any]], problem: str) -> None:
    text = find_placement_problem([actor("PENDING_CREATION", **needs)], [], latest_nodes([*NODES, *more], NOW))
    assert problem in text and bool(problem) == bool(text)


def test_an_attempt_that_can_never_start_is_ended_after_three_minutes() -> None:
    attempt, head = checks()
    head.actors = [actor("PENDING_CREATION", **LARGE)]
    for after in (0, ACTOR_PENDING_SECONDS, UNPLACEABLE_SECONDS - 1):
        attempt.run("01", BEFORE, NODES, NOW + after)
        assert attempt.placement_problem == ""
    assert attempt.notice.startswith("waits in vain: actor vLLMHttpServer needs 2 CPU and 16 GPU")
    attempt.run("01", BEFORE, NODES, NOW + UNPLACEABLE_SECONDS + CHECK_INTERVAL_SECONDS)
    assert attempt.placement_problem
    # A node joins that could hold it, and leaves.
    attempt.run("01", BEFORE, [*NODES, large()], NOW + UNPLACEABLE_SECONDS + 2 * CHECK_INTERVAL_SECONDS)
    attempt.run("01", BEFORE, NODES, NOW + UNPLACEABLE_SECONDS + 3 * CHECK_INTERVAL_SECONDS)
    assert attempt.placement_problem == ""


# Records of Ray 2.60 on nodes with 2 and 3 CPUs; `softpack` (PACK, 3 x 2 CPU) is not infeasible for it.
REAL = json.loads(Path(__file__).with_name("pending.json").read_text())


@pytest.mark.parametrize(
    ("name", "is_problem"),
    [
        *(("worker_8", True), ("pinned", False), ("in_pg2", False), ("lab", False)),
        *(("gone_8", True), ("pack6", True), ("spread5", True), ("softpack", False)),
    ],
)
def test_the_records_of_a_real_head(name: str, is_problem: bool) -> None:
    attempt, head = checks()
    head.actors = [one for one in REAL["actors"] if one["name"] == name]
    head.groups = [one for one in REAL["placement_groups"] if one["name"] == name]
    for now in (NOW, NOW + UNPLACEABLE_SECONDS):
        attempt.run("02000000", BEFORE, REAL["nodes"], now)
    assert (bool(attempt.placement_problem), bool(attempt.notice)) == (is_problem, True)


# The causes that Ray 2.60 lists after SIGKILL, ray.kill, and its memory monitor.
KILLED = {"actor_died_error_context": {"reason": "WORKER_DIED"}}
BY_RAY_KILL = {"actor_died_error_context": {"reason": "RAY_KILL"}}


@pytest.mark.parametrize(
    ("actors", "is_dead"),
    [
        ([actor("DEAD", "vllm_server_0_0", KILLED), actor("ALIVE", "vllm_server_1_0")], True),
        ([actor("DEAD", "hf_cpu_server_0", {"oom_context": {}})], True),
        # A server that verl ended, one that it started again, and an actor that is none.
        ([actor("DEAD", "vllm_server_0_0", BY_RAY_KILL)], False),
        ([actor("DEAD", "vllm_server_0_0", KILLED), actor("ALIVE", "vllm_server_0_0")], False),
        ([actor("DEAD", "observer_0", KILLED), actor("DEAD", "", KILLED)], False),
    ],
)
def test_a_server_that_died(actors: list[dict[str, Any]], is_dead: bool) -> None:
    attempt, head = checks()
    head.actors = actors
    attempt.run("01", TRAINS, NODES, 1000.0)
    died = f"{actors[0]['name']} (vLLMHttpServer pid=7) was killed or crashed"
    assert attempt.dead_server == (died if is_dead else "")
