# SPDX-License-Identifier: Apache-2.0
"""The status of a job: ``status.json`` in its archive, and the states that a job goes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..io.output import one_line
from .failures import Failure
from .job_warnings import JobWarning

# Parts a submission id from the number of the attempt. No submission id contains it.
ATTEMPT_SEPARATOR = "~"
# About three years: larger values are garbage.
MAX_PHASE_SECONDS = 1e8


class JobState(StrEnum):
    """The state of a job. docs/archive.md describes each."""

    QUEUED = "QUEUED"
    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    # The trainer has failed; the steward determines whether a lost node is the cause.
    ENDING = "ENDING"
    RETRYING = "RETRYING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def ended(self) -> bool:
        """Whether the state is final. Ray has the same three final states for its own jobs."""
        return self in ENDED


ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED)
# The states in which a job waits for resources without an attempt.
WAITING = (JobState.QUEUED, JobState.RETRYING)


class Phase(StrEnum):
    """The phases of an attempt before its first step, in their order. The names are shown to people."""

    QUEUE = "queue"
    DRIVER = "driver"
    TRAINER = "starting the trainer"
    RAY = "connecting to Ray"
    DATA = "reading the data"
    WORKERS = "starting workers"
    WEIGHTS = "loading weights"
    ENGINE = "starting the rollout engine"
    ROLLOUT = "first rollout"
    STEP = "first step"


def valid_phases(raw: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each phase, without implausible values: a job can put anything into its status."""
    return {str(phase): raw[phase] for phase in Phase if 0 <= raw.get(phase, -1) <= MAX_PHASE_SECONDS}


def ray_id(submission_id: str, attempt: int) -> str:
    """The id of an attempt in Ray: the job's own for the first, ``<id>~2`` for the second."""
    return submission_id if attempt == 1 else f"{submission_id}{ATTEMPT_SEPARATOR}{attempt}"


def submission_id_of(ray_id: str) -> str:
    return ray_id.partition(ATTEMPT_SEPARATOR)[0]


@dataclass(frozen=True)
class Attempt:
    """One attempt that has ended. Times are in seconds since the epoch."""

    attempt: int = 0
    state: str = ""
    kind: str = ""
    reason: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    # The step of the checkpoint that it resumed from.
    resumed_from: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", one_line(self.reason))
        object.__setattr__(self, "phases", valid_phases(self.phases))


@dataclass(frozen=True)
class Status:
    """The content of ``status.json``. Times are in seconds since the epoch, `updated_at` and `closed_at` in ISO 8601.

    Times and `steps` are the job's. `attempt_…`, `phases`, `resumed_from_step`, `driver` and `exit_code` are those of
    the current attempt, or of the last one.
    """

    # None while the id is reserved but the job is not submitted yet.
    state: JobState | None = None
    submission_id: str = ""
    workload: str = ""
    code_id: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)
    # Where the job comes from, if from another job: resumed_from, checkpoint, resubmitted_from.
    lineage: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1
    attempts: tuple[Attempt, ...] = ()
    submitted_at: float | None = None
    # user@controller, as the controller reports it.
    submitted_by: str = ""
    queued_at: float | None = None
    attempt_submitted_at: float | None = None
    started_at: float | None = None
    attempt_started_at: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)  # the seconds of each finished phase
    ended_at: float | None = None
    updated_at: str = ""
    closed_at: str = ""
    # The step of the checkpoint that the attempt resumed from; None if it began anew.
    resumed_from_step: int | None = None
    # The URL of the job's server, once it answers.
    address: str = ""
    # The host and the process id of the driver, `argus launch run`.
    driver: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    failure: Failure | None = None
    exit_code: int | None = None
    steps: int = 0
    attempt_steps: int = 0
    warnings: tuple[JobWarning, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "phases", valid_phases(self.phases))
