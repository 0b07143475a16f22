# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The submission of a job: its archive is created, the job is registered, and Ray called."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..jobspec.plan import WANDB_DIRECTORY, Job
from ..launcher import attempts, failures, redact, writing
from ..launcher.archive import HEARTBEAT_OF_STEWARD, Archive
from ..launcher.hydra import override_key
from ..launcher.program import RECORD, VERSION, Program
from ..launcher.status import JobState
from .registry import Registered, Registry
from .reward_files import RewardFiles

# Names of the logger W&B; "tracking" is an old one.
WANDB = re.compile(r"\b(wandb|tracking)\b")


@dataclass(frozen=True)
class Submission:
    """What is archived of a job, and submitted."""

    # The JobSpec as its author wrote it.
    given: Mapping[str, Any]
    job: Job
    # The composed configuration, as YAML.
    resolved: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    lineage: Mapping[str, str] = field(default_factory=dict)
    # Why the cluster has no capacity for the job; its steward then submits it later.
    queue_reason: str = ""
    # The code of the reward function.
    reward: RewardFiles | None = None


def write_archive(archive: Archive, submission: Submission) -> None:
    job = submission.job
    archive.write_json("config/job_spec.json", submission.given)
    archive.write_json("config/runtime_env.json", job.runtime_env)
    archive.write_text("config/submit_cmd.txt", job.submit_command())
    archive.write_text("config/train_cmd.txt", job.train_command())
    archive.write_json("config/plan.json", job.plan)
    archive.write_text("config/resolved.yaml", submission.resolved)
    archive.write_json(RECORD, {"version": VERSION, "program": Program.of_this_process().name})
    if submission.reward:
        submission.reward.write(archive)
    if any(override_key(override) == "trainer.logger" and WANDB.search(override) for override in job.plan.overrides):
        writing.make_directory(archive.path / WANDB_DIRECTORY)
    if submission.secrets:
        redact.store(archive.path, submission.secrets)


def write_status(archive: Archive, submission: Submission) -> None:
    """The first status of the job: QUEUED without capacity, otherwise SUBMITTED."""
    now = time.time()
    details: dict[str, Any] = {
        "workload": submission.job.plan.workload,
        "code_id": submission.job.plan.code_id,
        "submitted_at": now,
        "lineage": dict(submission.lineage),
        "tags": submission.job.tags,
    }
    if submission.queue_reason:
        archive.set_status(JobState.QUEUED, **details, attempt=1, queued_at=now, reason=submission.queue_reason)
    else:
        attempts.prepare(archive, 1, **details)


def register(archive: Archive, submission: Submission, registry: Registry) -> None:
    """Record that this cluster submits the job. From now on, its steward finds it if this process is interrupted."""
    # The steward of the cluster looks after a registered job as long as it has this file.
    archive.write_heartbeat(HEARTBEAT_OF_STEWARD, time=0)
    shared_root = str(archive.path.parents[1])
    address = submission.job.plan.address
    registry.write(Registered(archive.submission_id, time.time(), submission.given, shared_root, address))


def send(
    archive: Archive,
    submission: Submission,
    client: Any,
    registry: Registry,
) -> JobState:
    """Reserve the archive, fill it and submit the job. Returns the state of the job. The caller holds one_at_a_time.

    Afterwards there is either a job, or an archive with the reason, which the steward closes. Raises FileExistsError if
    the id was taken in the meantime.
    """
    archive.reserve()
    is_registered = False
    try:
        register(archive, submission, registry)
        is_registered = True
        write_archive(archive, submission)
        # If this process is interrupted after it, the steward finds out whether Ray has the job.
        write_status(archive, submission)
        if not submission.queue_reason:
            attempts.submit(archive, 1, client)
    except BaseException as error:
        attempts.record_end(
            archive, JobState.FAILED, failures.failure("unknown", f"it could not be submitted: {error}")
        )
        redact.forget(archive.path)
        if not is_registered:
            attempts.close(archive, JobState.FAILED)
        raise
    return JobState.QUEUED if submission.queue_reason else JobState.SUBMITTED


def same_spec(registered: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether a job was submitted with the same JobSpec; it is stored as JSON."""
    return bool(registered == json.loads(json.dumps(given)))
