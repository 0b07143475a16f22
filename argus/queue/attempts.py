# SPDX-License-Identifier: Apache-2.0
"""Prepares, submits and ends the attempts of a job, and decides on retries. An attempt is one submission to Ray."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Mapping
from typing import Any

from ..archive import checkpoints, failures, metrics
from ..archive.archive import STEWARD_HEARTBEAT, Archive
from ..archive.failures import Failure, FailureKind
from ..archive.plan import Plan
from ..archive.status import ENDED, WAITING, Attempt, JobState, Phase, Status, ray_id
from ..hooks import worker_secrets
from ..io.hydra import hydra_value, override_key
from ..io.reading import UnreadableError
from ..ray.records import with_names
from .demand import Demand

# The size of the log's end that is read to find the reason of a failure.
LOG_TAIL_BYTES = 1 << 20
# The beginning of the line in the log that separates an attempt from the one before.
ATTEMPT_MARKER = "ARGUS_VERL_ATTEMPT="
# A step as verl's console logger prints it (utils/logger/aggregate_logger.py), without lines of a validation alone.
STEP_LINE = re.compile(r"\bstep:(\d{1,15}) - (?!val)")
# The kinds of failure that the removal of a node can look like.
REMOVED_NODE_KINDS = (
    FailureKind.NODE_LOST,
    FailureKind.STOPPED,
    FailureKind.KILLED,
    FailureKind.ENGINE_LOST,
    FailureKind.COMMUNICATION,
    FailureKind.UNKNOWN,
)
# What the status of a server may give as its address.
SERVER_ADDRESS = re.compile(r"http://[\w.:\[\]-]{1,100}")
# The variable that tells verl where to write an attempt's metrics.
METRICS_VARIABLE = "VERL_FILE_LOGGER_PATH"


def current_attempt(archive: Archive) -> int:
    """The number of the current attempt, or of the last one."""
    return archive.read_status().attempt


def steps_done(archive: Archive, attempt: int) -> int:
    """The number of steps that an attempt has done, from its metrics, or without them from the end of its log."""
    try:
        with archive.open(f"logs/{archive.metrics_file(attempt).name}") as file:
            steps = metrics.read_steps(file, metrics.MAX_FILE_BYTES)
            # A validation before the first step is a line of its own.
            return len({step.number for step in steps if {name[:3] for name in step.metrics} != {"val"}})
    except (FileNotFoundError, UnreadableError):
        # The output of earlier attempts does not count.
        return len(set(STEP_LINE.findall(archive.log_tail(LOG_TAIL_BYTES).rpartition(attempt_marker_line(attempt))[2])))


def attempt_marker_line(attempt: int) -> str:
    """The line in the log before the output of each attempt but the first."""
    return f"{ATTEMPT_MARKER}{attempt}"


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


def may_retry(plan: Plan, status: Status, kind: FailureKind, steps: int) -> bool:
    """Whether another attempt follows one that failed so after these steps. Losing the head uses up no retry."""
    head_losses = sum(attempt.kind == FailureKind.HEAD_LOST for attempt in status.attempts)
    return kind is FailureKind.HEAD_LOST or (status.attempt - head_losses <= plan.retries and kind.is_retryable(steps))


def stop_cause_file(archive: Archive) -> str:
    """The file with the cause for which the current attempt is being stopped from outside."""
    return f"config/verdict-{current_attempt(archive)}.json"


def record_stop_cause(archive: Archive, failure: Failure) -> None:
    """Write down why the current attempt is being stopped from outside."""
    archive.write_json(stop_cause_file(archive), failure)


def stop_cause(archive: Archive) -> Failure | None:
    """Why the current attempt is being stopped from outside, if it is."""
    with contextlib.suppress(UnreadableError):
        return archive.read_typed(stop_cause_file(archive), Failure)
    return None


def with_advice(archive: Archive, failure: Failure) -> Failure:
    """The failure, whose advice suggests to resume only if the job has a checkpoint for that."""
    if failures.RESUME not in failure.todo:
        return failure
    workload = (archive.plan() or Plan()).workload
    has_one = checkpoints.last_complete(archive.path / "checkpoints", workload) is not None
    return failure if has_one else dataclasses.replace(failure, todo=failure.todo.replace(failures.RESUME, ""))


def record_trainer_failure(archive: Archive, failure: Failure, **details: Any) -> JobState:
    """Record that a trainer has failed, and leave it to the steward to find out whether a lost node is the cause.

    Processes that were connected to a lost node may fail before Ray notices the loss.
    """
    failed = {"ended_at": time.time(), "reason": failure.reason, "failure": with_advice(archive, failure)}
    archive.set_status(JobState.ENDING, **details, **failed)
    return JobState.ENDING


def record_end(
    archive: Archive, state: JobState, failure: Failure | None, now: float | None = None, **details: Any
) -> JobState:
    """Record how an attempt ended; returns the job's state, which is RETRYING if there will be another attempt."""
    # A submission that fails early has no plan.
    plan = archive.plan() or Plan()
    status = archive.read_status()
    ended_at = time.time() if now is None else now
    if status.state is JobState.ENDING and status.ended_at is not None:
        ended_at = status.ended_at
    # A job that waits for its first or its next attempt has no running attempt to record.
    has_attempt = status.state not in WAITING
    failure = with_requester(archive, failure) if failure and failure.kind is FailureKind.STOPPED else failure
    failure = failure and with_advice(archive, failure)
    reason = failure.reason if failure else details.pop("reason", "")
    retry = (
        has_attempt
        and state == JobState.FAILED
        and failure is not None
        and not archive.stop_requested()
        and may_retry(plan, status, failure.kind, details.get("attempt_steps", 0))
    )
    attempts = list(status.attempts)
    if has_attempt:
        ended = Attempt(
            attempt=status.attempt,
            state=state,
            kind=failure.kind if failure else "",
            reason=reason,
            started_at=status.attempt_started_at,
            ended_at=ended_at,
            resumed_from=status.resumed_from_step,
            phases=status.phases,
        )
        attempts.append(ended)
    state = JobState.RETRYING if retry else state
    archive.set_status(state, **details, ended_at=ended_at, reason=reason, failure=failure, attempts=attempts)
    return state


def record_unattended_stop(archive: Archive, reason: str) -> JobState:
    """Record the end of a stopped job that has neither a steward nor a launcher. Raises UnreadableError."""
    status = archive.read_status()
    # A trainer that had failed before the request has failed.
    failed = status.failure if status.state is JobState.ENDING else None
    failure = failed or failures.failure(FailureKind.STOPPED, reason)
    return record_end(
        archive,
        JobState.FAILED if failed else JobState.STOPPED,
        failure,
        steps=archive.last_step(),
        attempt_steps=steps_done(archive, status.attempt),
    )


def close_if_ended(archive: Archive, state: str) -> None:
    """If the job has ended, remove its secrets and close the archive, to which nothing is written afterwards."""
    if state in ENDED:
        worker_secrets.forget(archive.path)
        archive.close()
        # A job needs a steward as long as this file exists.
        (archive.path / STEWARD_HEARTBEAT).unlink(missing_ok=True)


def name_nodes(archive: Archive, nodes: Mapping[str, str]) -> None:
    """Replace Ray's ids of nodes, as a trainer's log has them, by the names of nodes in the recorded reasons."""
    status = archive.read_status()
    renamed = dataclasses.replace(
        status,
        reason=with_names(status.reason, nodes),
        failure=status.failure and dataclasses.replace(status.failure, reason=with_names(status.failure.reason, nodes)),
        attempts=tuple(dataclasses.replace(run, reason=with_names(run.reason, nodes)) for run in status.attempts),
    )
    if renamed != status:
        changed = {"reason": renamed.reason, "failure": renamed.failure, "attempts": renamed.attempts}
        archive.write_json("status.json", {**archive.status_json(), **changed})


def explain_removal(archive: Archive, node: str) -> None:
    """Add to the reason of an attempt that its node was removed, which its launcher cannot tell from another loss."""
    status = archive.read_status()
    failure, prefix = status.failure, f"drain.yml removed node {node} with allow_disruption: "
    if failure is None or failure.kind not in REMOVED_NODE_KINDS:
        return
    if archive.stop_requested() or status.reason.startswith(prefix):
        return
    reason = prefix + status.reason
    changed = {
        "reason": reason,
        "failure": with_advice(archive, dataclasses.replace(failure, reason=reason, todo=failures.NODE_REMOVED_REMEDY)),
        "attempts": [
            dataclasses.replace(attempt, reason=reason) if attempt.attempt == status.attempt else attempt
            for attempt in status.attempts
        ],
    }
    archive.write_json("status.json", {**archive.status_json(), **changed})


def with_requester(archive: Archive, stopped: Failure) -> Failure:
    """The failure of a stopped job, with a reason that says who asked for the stop."""
    other = "not by stop.yml: by `ray job stop`, in Ray's dashboard, or with its node"
    who = f"by {archive.stop_requested_by() or 'stop.yml'}" if archive.stop_requested() else other
    return dataclasses.replace(stopped, reason=f"{stopped.reason}, {who}")


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
