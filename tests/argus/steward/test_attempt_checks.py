"""What Ray tells about an attempt that runs: its TransferQueue, and what it waits for."""

from __future__ import annotations

from typing import Any

import pytest
from steward_scene import Head

from argus.archive.archive import Heartbeat
from argus.queue.room import Demand
from argus.steward.attempt_checks import (
    ASK_SECONDS,
    GONE_SECONDS,
    PENDING_SECONDS,
    WAITING_SECONDS,
    AttemptChecks,
)

BEFORE, TRAINS, DONE = (Heartbeat(step=step, total_steps=10) for step in (0, 3, 10))
SEVERAL = "the job has 2 controllers of TransferQueue: its samples are in several queues"
OTHERS = "the job trains without a TransferQueue of its own: its samples may be those of another job"
GONE = "the controller of the job's TransferQueue is gone: no sample can reach the trainer"


def controller(job_id: str = "01", state: str = "ALIVE", name: str = "TransferQueueController") -> dict[str, Any]:
    return {"job_id": job_id, "state": state, "class_name": name, "ray_namespace": "transfer_queue-01"}


def group(state: str, *bundles: dict[str, float], job_id: str = "01") -> dict[str, Any]:
    return {"creator_job_id": job_id, "state": state, "bundles": [{"unit_resources": each} for each in bundles]}


# --- From step to step ------------------------------------------------------------------------------------------------

QUEUE = Demand(controller_cpus=1)


def checks(demand: Demand = QUEUE) -> tuple[AttemptChecks, Head]:
    head = Head()
    head.controllers = [controller()]
    return AttemptChecks(head, demand), head


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
    found, head = checks()
    found.look("01", BEFORE, 1000.0)
    head.controllers += more
    found.look("01", BEFORE, 1000.0 + ASK_SECONDS - 1)
    assert found.queue_problem == ""
    found.look("01", BEFORE, 1000.0 + ASK_SECONDS)
    assert found.queue_problem == problem


def test_a_controller_that_is_gone_for_a_while() -> None:
    found, head = checks()
    found.look("01", TRAINS, 1000.0)
    # It is there again.
    head.controllers = []
    found.look("01", TRAINS, 1000.0)
    head.controllers = [controller()]
    found.look("01", TRAINS, 1000.0 + GONE_SECONDS)
    assert found.queue_problem == ""
    found, head = checks()
    found.look("01", TRAINS, 1000.0)
    head.controllers = []
    found.look("01", TRAINS, 1000.0 + ASK_SECONDS)
    found.look("01", TRAINS, 1000.0 + ASK_SECONDS + GONE_SECONDS - 1)
    assert found.queue_problem == ""
    found.look("01", TRAINS, 1000.0 + 2 * ASK_SECONDS + GONE_SECONDS)
    assert found.queue_problem == GONE
    found.look("01", Heartbeat(step=4, total_steps=10), 1000.0 + 3 * ASK_SECONDS + GONE_SECONDS)
    assert found.queue_problem == OTHERS


def test_an_attempt_that_waits_for_its_placement() -> None:
    found, head = checks()
    pack, one = {"GPU": 1.0, "CPU": 10.0}, {"CPU": 1.0}
    head.groups = [group("PENDING", pack, pack), group("CREATED", pack), group("RESCHEDULING", one)]
    head.groups += [group("REMOVED", pack), group("PENDING", pack, job_id="02")]
    found.look("01", BEFORE, 1000.0)
    # One that was just made is not worth a word.
    assert found.notice == ""
    found.look("01", BEFORE, 1000.0 + WAITING_SECONDS)
    assert "1 x 0 GPU and 1 CPU, 2 x 1 GPU and 10 CPU" in found.notice
    found.look("01", TRAINS, 1000.0 + 2 * WAITING_SECONDS)
    assert found.notice == ""


def actor(state: str, name: str = "", cause: Any = None, **resources: float) -> dict[str, Any]:
    asked = {"class_name": "vLLMHttpServer", "required_resources": resources}
    return {"job_id": "01", "state": state, "name": name, "pid": 7, "death_cause": cause, **asked}


def test_actors_that_do_not_start_are_named_with_what_they_ask_for() -> None:
    found, head = checks()
    ours = {"GPU_group_1a": 1.0, "GPU_group_0_1a": 1.0, "CPU_group_1a": 3.0, "bundle_group_1a": 0.001}
    head.actors = [actor("PENDING_CREATION", **ours), actor("DEPENDENCIES_UNREADY", **ours), actor("ALIVE", **ours)]
    found.look("01", BEFORE, 1000.0)
    found.look("01", BEFORE, 1000.0 + PENDING_SECONDS - 1)
    assert found.notice == ""
    found.look("01", BEFORE, 1000.0 + PENDING_SECONDS + ASK_SECONDS)
    assert found.notice == "waits for its actors to start: 2 x vLLMHttpServer (3 CPU and 1 GPU)"
    # Another one waits since now.
    head.actors = [actor("PENDING_CREATION")]
    found.look("01", BEFORE, 1000.0 + PENDING_SECONDS + 2 * ASK_SECONDS)
    assert found.notice == ""


# As Ray 2.60 lists actors after SIGKILL, ray.kill, and its memory monitor.
KILLED = {"actor_died_error_context": {"reason": "WORKER_DIED"}}
ASKED_TO = {"actor_died_error_context": {"reason": "RAY_KILL"}}


@pytest.mark.parametrize(
    ("actors", "is_dead"),
    [
        ([actor("DEAD", "vllm_server_0_0", KILLED), actor("ALIVE", "vllm_server_1_0")], True),
        ([actor("DEAD", "hf_cpu_server_0", {"oom_context": {}})], True),
        # A server that verl ended, one that it started again, and an actor that is none.
        ([actor("DEAD", "vllm_server_0_0", ASKED_TO)], False),
        ([actor("DEAD", "vllm_server_0_0", KILLED), actor("ALIVE", "vllm_server_0_0")], False),
        ([actor("DEAD", "observer_0", KILLED), actor("DEAD", "", KILLED)], False),
    ],
)
def test_a_server_that_died(actors: list[dict[str, Any]], is_dead: bool) -> None:
    found, head = checks()
    head.actors = actors
    found.look("01", TRAINS, 1000.0)
    died = f"{actors[0]['name']} (vLLMHttpServer pid=7) was killed or crashed"
    assert found.engine == (died if is_dead else "")


def test_a_job_without_a_queue_is_not_asked_for_one() -> None:
    found, head = checks(Demand())
    head.controllers *= 2
    found.look("01", TRAINS, 1000.0)
    assert found.queue_problem == ""
