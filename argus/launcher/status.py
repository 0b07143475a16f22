# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a job: ``status.json`` in its archive, and the states that a job goes through."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from .job_warnings import MOST_WARNINGS, JobWarning
from .output import one_line
from .schema import Bounds, Count, MalformedError, Time, TimeText, parse

# A JobSpec allows 100 retries.
MOST_ATTEMPTS = 1000
# No submission id of a JobSpec contains it: the id of an attempt cannot be that of another job.
SEPARATOR = "~"
AttemptNumber = Annotated[int, Bounds(1, MOST_ATTEMPTS)]


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


def ray_id(submission_id: str, attempt: int) -> str:
    """The id of an attempt in Ray: the job's own for the first, ``<id>~2`` for the second."""
    return submission_id if attempt == 1 else f"{submission_id}{SEPARATOR}{attempt}"


def submission_id_of(ray_id: str) -> str:
    """The submission id of the job of which this is an attempt."""
    return ray_id.partition(SEPARATOR)[0]


def known_fields(kind: type[Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The stored values that a dataclass knows; null counts as missing."""
    names = {each.name for each in dataclasses.fields(kind)}
    return {name: value for name, value in stored.items() if name in names and value is not None}


@dataclass(frozen=True)
class Attempt:
    """One attempt that has ended. Times are in seconds since the epoch."""

    attempt: int = 0
    state: str = ""
    kind: str = ""
    reason: str = ""
    started_at: Time | None = None
    ended_at: Time | None = None
    # The step of the checkpoint that it resumed from.
    resumed_from: Count | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", one_line(self.reason))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: object) -> Attempt:
        """An attempt as it was stored. Raises MalformedError."""
        return parse(cls, stored)


@dataclass(frozen=True)
class StoredFailure:
    """What failures.Failure.to_json writes."""

    kind: str = ""
    reason: str = ""
    lines: tuple[str, ...] = ()
    todo: str = ""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"lines": list(self.lines)}


@dataclass(frozen=True)
class Given:
    """The values of ``status.json`` that Status holds in another form."""

    state: str = ""
    failure: StoredFailure | None = None


@dataclass(frozen=True)
class Status:
    """What ``status.json`` holds. Times are in seconds since the epoch, `updated_at` and `closed_at` in ISO 8601.

    state: None for an archive that was only just reserved.
    """

    state: JobState | None = None
    submission_id: str = ""
    workload: str = ""
    code_id: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)
    # How the job came about: resumed_from, checkpoint, resubmitted_from.
    lineage: Mapping[str, str] = field(default_factory=dict)
    attempt: AttemptNumber = 1
    attempts: tuple[Attempt, ...] = ()
    submitted_at: Time | None = None
    queued_at: Time | None = None
    attempt_submitted_at: Time | None = None
    started_at: Time | None = None
    attempt_started_at: Time | None = None
    ended_at: Time | None = None
    updated_at: TimeText = ""
    closed_at: TimeText = ""
    # The step of the checkpoint that the current attempt resumed from.
    resumed_from_step: Count | None = None
    # Host and process id of the launcher.
    driver: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    # As failures.Failure.to_json writes it.
    failure: Mapping[str, Any] | None = None
    exit_code: int | None = None
    steps: Count = 0
    attempt_steps: Count = 0
    warnings: tuple[JobWarning, ...] = ()

    @classmethod
    def from_json(cls, stored: object) -> Status:
        """A status as it was stored, perhaps by another version of this collection. Raises MalformedError."""
        if not isinstance(stored, Mapping):
            raise MalformedError("it is not a mapping")
        given = parse(Given, stored)
        found = parse(cls, {name: value for name, value in stored.items() if name not in ("failure", "state")})
        if len(found.attempts) > MOST_ATTEMPTS:
            raise MalformedError(f"attempts: has more than {MOST_ATTEMPTS} entries")
        if len(found.warnings) > MOST_WARNINGS:
            raise MalformedError(f"warnings: has more than {MOST_WARNINGS} entries")
        return dataclasses.replace(
            found,
            state=JobState(given.state) if given.state in list(JobState) else None,
            failure=given.failure.to_json() if given.failure else None,
        )
