# SPDX-License-Identifier: Apache-2.0
"""Prepares the attempts of a job and submits them to Ray, with the addresses of the servers that the job needs."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

from ..archive import checkpoints
from ..archive.archive import Archive
from ..archive.plan import Plan
from ..archive.status import ENDED, JobState, Phase, Status, ray_id
from ..io.hydra import hydra_value, override_key
from .demand import Demand

# What the status of a server may give as its address.
SERVER_ADDRESS = re.compile(r"http://[\w.:\[\]-]{1,100}")
# The variable that tells verl where to write an attempt's metrics.
METRICS_VARIABLE = "VERL_FILE_LOGGER_PATH"


def overrides_for(plan: Plan, attempt: int, checkpoint: checkpoints.Checkpoint | None) -> list[str]:
    """The Hydra overrides of an attempt, which resumes from a checkpoint. None: the job has no complete one.

    verl's own resume_mode=auto takes the checkpoint that its tracker file names, even if it is damaged.
    """
    planned = list(plan.overrides)
    if attempt == 1:
        return planned
    keys = ("trainer.resume_mode", "trainer.resume_from_path")
    rest = [item for item in planned if override_key(item) not in keys]
    if checkpoint is None:
        if plan.resumed_from or any(override_key(item) == keys[1] for item in planned):
            return planned  # resumes where the first attempt did
        resume = ["trainer.resume_mode=disable"]
    else:
        resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={hydra_value(str(checkpoint.path))}"]
    return rest + resume


def recorded_overrides(archive: Archive, plan: Plan, attempt: int) -> list[str]:
    """The Hydra overrides of an attempt, as recorded before its submission."""
    record = archive.read_mapping(f"config/attempt-{attempt}.json")
    return list(record.get("overrides", plan.overrides))


def phases_before(status: Status, started: float) -> dict[str, float]:
    """The seconds that an attempt waited in the queue and for its driver. started: when its launcher began."""
    submitted, queued = status.attempt_submitted_at, status.queued_at if status.attempt == 1 else status.ended_at
    queue = {Phase.QUEUE: submitted - queued} if submitted and queued else {}
    driver = {Phase.DRIVER: started - submitted} if submitted else {}
    return {str(phase): round(max(0.0, seconds), 1) for phase, seconds in (queue | driver).items()}


def prepare_attempt(archive: Archive, attempt: int, **details: Any) -> None:
    """Record the overrides and the checkpoint of the next attempt, and set the state to SUBMITTED."""
    plan = archive.plan() or Plan()
    resumed_from = plan.resumed_from_step
    if attempt > 1:
        checkpoint = checkpoints.last_complete(archive.path / "checkpoints", plan.workload)
        archive.write_json(f"config/attempt-{attempt}.json", {"overrides": overrides_for(plan, attempt, checkpoint)})
        resumed_from = checkpoint.step if checkpoint else resumed_from
    now = time.time()
    archive.set_status(
        JobState.SUBMITTED,
        **details,
        attempt=attempt,
        attempt_submitted_at=now,
        resumed_from_step=resumed_from,
        phases={},
        reason="",  # clears the reason for waiting
    )


def submit(archive: Archive, attempt: int, client: Any) -> None:
    """Submit a prepared attempt to Ray, as the plan specifies. client: a JobSubmissionClient; raises its errors."""
    plan = archive.plan() or Plan()
    runtime_env = archive.read_mapping("config/runtime_env.json")
    runtime_env["env_vars"][METRICS_VARIABLE] = str(archive.metrics_file(attempt))
    runtime_env["env_vars"] |= {name: server_address(archive, server) for name, server in plan.env_from.items()}
    identifier = ray_id(archive.submission_id, attempt)
    try:
        client.submit_job(
            entrypoint=f"{plan.entrypoint} {attempt}",
            submission_id=identifier,
            runtime_env=runtime_env,
            entrypoint_num_cpus=plan.entrypoint_num_cpus,
            entrypoint_num_gpus=plan.entrypoint_num_gpus,
            entrypoint_resources=dict(plan.entrypoint_resources),
            metadata={"submission_id": archive.submission_id, "attempt": str(attempt), **Demand.of(plan).to_metadata()},
        )
    except Exception:
        # The submission may have succeeded, and only the answer was lost.
        with contextlib.suppress(Exception):
            if client.get_job_status(identifier) in ("PENDING", "RUNNING"):
                return
        raise


def server_address(archive: Archive, server: str) -> str:
    """The address of another job, a server, for the job of an archive; "" if the server does not answer yet."""
    status = Archive(archive.path.with_name(server)).read_status()
    # The server is a job, which can write anything into its status.
    answers = status.state is JobState.RUNNING and SERVER_ADDRESS.fullmatch(status.address)
    return status.address if answers else ""


def unmet_server_condition(archive: Archive, plan: Plan) -> str:
    """What a job waits for if a server whose address it needs does not answer yet, or ""."""
    silent = [server for server in plan.env_from.values() if not server_address(archive, server)]
    return f"for {silent[0]} to answer" if silent else ""


def ended_server(archive: Archive, plan: Plan) -> str:
    """The id of a server whose address a job needs, and that has ended, or ""."""
    servers = plan.env_from.values()
    return next((server for server in servers if Archive(archive.path.with_name(server)).state() in ENDED), "")


def cancel_pending(submission_id: str) -> None:
    """End a Ray job whose driver has not started. Ray's stop_job would return True and do nothing."""
    import ray

    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    # The actor is gone if the job has ended meanwhile.
    with contextlib.suppress(ValueError):
        ray.kill(ray.get_actor(f"_ray_internal_job_actor_{submission_id}", namespace="SUPERVISOR_ACTOR_RAY_NAMESPACE"))
    ray.shutdown()
