# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts: each run of a job's trainer is one submission to Ray; what comes after one."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from . import checkpoints, failures
from .archive import ENDING, FAILED, QUEUED, RETRYING, SIGN, SUBMITTED, Archive
from .hydra import hydra_value, override_key
from .plan import Plan

# A character that no submission id of ours has: attempts cannot collide with other jobs.
SEPARATOR = "~"
# How much of the log is read for the reason of a failure.
LOG_BYTES = 1 << 20
# verl's console logger (utils/logger/aggregate_logger.py).
STEP = re.compile(r"\bstep:(\d+) - ")
METRICS_VARIABLE = "VERL_FILE_LOGGER_PATH"


def ray_id(submission_id: str, attempt: int) -> str:
    """Under which id Ray knows an attempt: the job's own for the first, ``<id>~2`` for the second."""
    return submission_id if attempt == 1 else f"{submission_id}{SEPARATOR}{attempt}"


def current(archive: Archive) -> int:
    return int(archive.status().get("attempt") or 1)


def steps_done(archive: Archive, attempt: int) -> int:
    """How many steps an attempt has done; without a metrics file, those that the end of its log tells of."""
    file = archive.metrics_file(attempt)
    if not file.exists():
        return len(set(STEP.findall(attempt_log(archive, attempt))))
    with file.open(encoding="utf-8") as lines:
        return len({json.loads(line)["step"] for line in lines if line.endswith("\n")})


def log_line(attempt: int) -> str:
    """What stands in the log before everything of an attempt that is not the first."""
    return f"ARGUS_VERL_ATTEMPT={attempt}"


def attempt_log(archive: Archive, attempt: int) -> str:
    """The end of the log, as far as it is the attempt's."""
    return archive.log_tail(LOG_BYTES).rpartition(log_line(attempt))[2]


def next_checkpoint(archive: Archive, workload: str) -> checkpoints.Checkpoint | None:
    """What the next attempt goes on from: the job's own last complete checkpoint."""
    return checkpoints.last_complete(archive.path / "checkpoints", workload)


def overrides(plan: Plan, attempt: int, checkpoint: checkpoints.Checkpoint | None) -> list[str]:
    """The Hydra overrides of an attempt.

    verl's own resume_mode=auto takes the last checkpoint that it had begun to count, also a damaged one.
    """
    own = list(plan.overrides)
    if attempt == 1:
        return own
    keys = ("trainer.resume_mode", "trainer.resume_from_path")
    rest = [item for item in own if override_key(item) not in keys]
    if checkpoint is None:
        if plan.resumed_from or any(override_key(item) == keys[1] for item in own):
            return own  # from where the first one began
        resume = ["trainer.resume_mode=disable"]
    else:
        resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={hydra_value(str(checkpoint.path))}"]
    return rest + resume


def may_retry(plan: Plan, attempt: int, kind: str, steps: int) -> bool:
    return attempt <= plan.retries and failures.retryable(kind, steps)


def verdict_file(archive: Archive) -> str:
    return f"config/verdict-{current(archive)}.json"


def set_verdict(archive: Archive, failure: failures.Failure) -> None:
    """For what the current attempt is going to be ended from outside."""
    archive.write_json(verdict_file(archive), failure.as_dict())


def verdict(archive: Archive) -> failures.Failure | None:
    return failure_of(archive.read_json(verdict_file(archive)))


def failure_of(said: Mapping[str, Any] | None) -> failures.Failure | None:
    """A failure as it was written down."""
    return failures.Failure(**{**said, "lines": tuple(said["lines"])}) if said else None


def record_trouble(archive: Archive, failure: failures.Failure, **details: Any) -> str:
    """Write down that a trainer has failed, and leave it to the keeper to find out whether a lost node is the cause.

    Processes that spoke with one on a lost node complain within seconds; Ray takes half a minute to notice.
    """
    archive.set_status(ENDING, **details, ended_at=time.time(), reason=failure.reason, failure=failure.as_dict())
    return ENDING


def record_end(archive: Archive, state: str, failure: failures.Failure | None, **details: Any) -> str:
    """Write down how an attempt ended; the job's state, which is RETRYING when there will be another one."""
    # A submission that fails early has no plan.
    plan = archive.plan() or Plan()
    status = archive.status()
    attempt = current(archive)
    ended_at = status["ended_at"] if status.get("state") == ENDING else time.time()
    # A job that waits for its first or its next attempt has none that could end.
    attempted = status.get("state") not in (QUEUED, RETRYING)
    reason = failure.reason if failure else details.pop("reason", "")
    if (
        state == FAILED
        and failure
        and not archive.stop_requested()
        and attempted
        and may_retry(plan, attempt, failure.kind, details.get("attempt_steps", 0))
    ):
        state = RETRYING
    ended = list(status.get("attempts", []))
    if attempted:
        ended.append(
            {
                "attempt": attempt,
                "started_at": status.get("attempt_started_at"),
                "ended_at": ended_at,
                "state": FAILED if state == RETRYING else state,
                "kind": failure.kind if failure else "",
                "reason": reason,
                "resumed_from": status.get("resumed_from_step"),
            }
        )
    archive.set_status(
        state,
        **details,
        ended_at=ended_at,
        reason=reason,
        failure=failure.as_dict() if failure else None,
        attempts=ended,
    )
    return state


def other_queue(archive: Archive, jobs: Iterable[Mapping[str, Any]]) -> str:
    """Another job that lives and has a TransferQueue; `jobs` are Ray's records.

    verl's TransferQueue has one controller in a Ray cluster, whatever job it is of (transfer_queue/interface.py: an
    actor with a fixed name and namespace): a second job would mix its data with the first one's.
    """
    others = {
        str(job["submission_id"]).partition(SEPARATOR)[0] for job in jobs if job["status"] in ("PENDING", "RUNNING")
    }
    # One that waits for its lost node to be back must find its place free.
    kept = (Archive(sign.parent) for sign in archive.path.parent.glob(f"*/{SIGN}"))
    others |= {one.submission_id for one in kept if one.is_kept() and one.status().get("state") in (ENDING, RETRYING)}
    for identifier in sorted(others - {archive.submission_id}):
        plan = Archive(archive.path.parent / identifier).plan()
        if plan and plan.transfer_queue:
            return f"{identifier} runs, and verl's TransferQueue serves one job of ppo or grpo in a cluster"
    return ""


class JobClient(Protocol):
    """The calls of ray.job_submission.JobSubmissionClient that are made here."""

    def submit_job(self, **arguments: Any) -> str: ...

    def get_job_status(self, job_id: str) -> Any: ...


def prepare(archive: Archive, attempt: int, **details: Any) -> None:
    """Write down what an attempt will be, before Ray hears of it."""
    plan = archive.plan() or Plan()
    resumed_from = plan.resumed_from_step
    if attempt > 1:
        checkpoint = next_checkpoint(archive, plan.workload)
        archive.write_json(f"config/attempt-{attempt}.json", {"overrides": overrides(plan, attempt, checkpoint)})
        resumed_from = checkpoint.step if checkpoint else resumed_from
    now = time.time()
    archive.set_status(SUBMITTED, **details, attempt=attempt, attempt_submitted_at=now, resumed_from_step=resumed_from)


def submit(archive: Archive, attempt: int, client: JobClient) -> None:
    """Hand a prepared attempt to Ray, exactly as the plan says."""
    plan = archive.plan() or Plan()
    runtime_env = archive.read_json("config/runtime_env.json")
    runtime_env["env_vars"][METRICS_VARIABLE] = str(archive.metrics_file(attempt))
    identifier = ray_id(archive.submission_id, attempt)
    try:
        client.submit_job(
            entrypoint=f"{plan.entrypoint} {attempt}",
            submission_id=identifier,
            runtime_env=runtime_env,
            entrypoint_num_cpus=plan.entrypoint_num_cpus,
            entrypoint_resources=dict(plan.entrypoint_resources),
            metadata={"submission_id": archive.submission_id, "attempt": str(attempt)},
        )
    except Exception:
        # An answer that was lost is not a job that was refused.
        if not is_known(client, identifier):
            raise


def is_known(client: JobClient, identifier: str) -> bool:
    try:
        return client.get_job_status(identifier) in ("PENDING", "RUNNING")
    except Exception:
        return False


def cancel_pending(submission_id: str) -> None:
    """End a Ray job whose driver was not started yet: Ray's stop_job says True to that and does nothing."""
    import ray

    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    # Somebody else may have been faster.
    with contextlib.suppress(ValueError):
        ray.kill(ray.get_actor(f"_ray_internal_job_actor_{submission_id}", namespace="SUPERVISOR_ACTOR_RAY_NAMESPACE"))
    ray.shutdown()
