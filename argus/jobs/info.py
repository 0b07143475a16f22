# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types in which the status of jobs travels: from archive and head into ray_job_info, and from there to reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..launcher import failures
from ..launcher.failures import Failure
from ..launcher.job_warnings import JobWarning
from ..launcher.schema import Count, MalformedError, Time, parse
from ..launcher.status import ENDED, Attempt, known_fields

# The state of a job whose archive has no status.json yet.
UNKNOWN = "UNKNOWN"
# The state of a job whose status.json cannot be read.
UNREADABLE = "UNREADABLE"


@dataclass(frozen=True)
class RayRecord:
    """What Ray's Jobs API knows of one submission. Statuses are Ray's own, among them PENDING."""

    submission_id: str
    status: str
    message: str = ""
    # In seconds since the epoch.
    started_at: float = 0.0
    driver_node_id: str | None = None
    # Set once the driver has connected to Ray.
    driver_node_ip: str | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> RayRecord:
        return cls(
            submission_id=str(answer["submission_id"]),
            status=str(answer["status"]),
            message=str(answer.get("message") or ""),
            started_at=(answer.get("start_time") or 0) / 1000,
            driver_node_id=answer.get("driver_node_id"),
            driver_node_ip=(answer.get("driver_info") or {}).get("node_ip_address"),
        )


@dataclass(frozen=True)
class Heartbeat:
    """What the launcher writes every 2 seconds while its trainer runs. Times are those of the launcher's clock."""

    time: Time | None = None
    step: Count | None = None
    total_steps: Count | None = None
    # The first step of this attempt, and when it was done.
    first_step: Count | None = None
    first_step_at: Time | None = None
    # A Phase, before the first step.
    phase: str = ""

    @classmethod
    def from_json(cls, stored: object) -> Heartbeat:
        """A heartbeat as it was stored; without values if it is malformed."""
        try:
            return parse(cls, stored)
        except MalformedError:
            return cls()


@dataclass(frozen=True)
class Progress:
    """How far a job is, the first and the last value of its key metric, and its throughput.

    tokens_per_second: of all GPUs together. tokens_per_second_per_gpu: as verl measures it. seconds: of the parts of
    the last step, by verl's names.
    """

    step: int = 0
    total_steps: int | None = None
    metric: str = ""
    first: float | None = None
    last: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_per_gpu: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JobInfo:
    """What ray_job_info returns of one job. plugins/modules/ray_job_info.py documents each field.

    state: a JobState, Ray's PENDING, UNKNOWN or UNREADABLE.
    unreadable: what of the archive could not be read, and why.
    notice: what the job waits for, according to its steward, or that it has none.
    unattended: whether neither a steward nor a launcher looks after the job.
    """

    submission_id: str
    state: str
    ended: bool = False
    reason: str = ""
    failure: Failure | None = None
    workload: str = ""
    code_id: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)
    lineage: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1
    attempts: tuple[Attempt, ...] = ()
    warnings: tuple[JobWarning, ...] = ()
    phase: str = ""
    submitted_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    silent_for: float | None = None
    time_left: float | None = None
    driver_host: str | None = None
    driver_node_id: str | None = None
    driver_node_ip: str | None = None
    progress: Progress = Progress()
    checkpoints: tuple[int, ...] = ()
    resumable: int | None = None
    archive: str = ""
    log: tuple[str, ...] = ()
    log_position: str = ""
    problem: str = ""
    # Why nothing can be written to the shared root, and when the job's processes last wrote to the archive.
    root_problem: str = ""
    written_at: float | None = None
    unreadable: tuple[str, ...] = ()
    notice: str = ""
    unattended: bool = False

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {
            "failure": dataclasses.asdict(self.failure) | {"lines": list(self.failure.lines)} if self.failure else None,
            "attempts": [attempt.to_json() for attempt in self.attempts],
            "warnings": [warning.to_json() for warning in self.warnings],
            "checkpoints": list(self.checkpoints),
            "log": list(self.log),
            "unreadable": list(self.unreadable),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> JobInfo:
        values = known_fields(cls, stored)
        return cls(
            **values
            | {
                "failure": failure_from(stored.get("failure")),
                "attempts": tuple(map(Attempt.from_json, values.get("attempts", ()))),
                "warnings": tuple(map(JobWarning.from_json, values.get("warnings", ()))),
                "progress": Progress(**known_fields(Progress, values.get("progress", {}))),
                "checkpoints": tuple(values.get("checkpoints", ())),
                "log": tuple(values.get("log", ())),
                "unreadable": tuple(values.get("unreadable", ())),
            }
        )


@dataclass(frozen=True)
class JobList:
    """The latest jobs, the newest first.

    total: how many jobs there are altogether, or how many have the tags.
    problem: why the head could not be asked, or an empty string.
    tags: what was asked for; other jobs are not listed.
    """

    jobs: tuple[JobInfo, ...]
    total: int
    directory: str
    problem: str = ""
    root_problem: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"jobs": [job.to_json() for job in self.jobs]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> JobList:
        jobs = tuple(map(JobInfo.from_json, stored["jobs"]))
        problems = str(stored["problem"]), str(stored.get("root_problem") or "")
        tags = stored.get("tags") or {}
        return cls(jobs, int(stored["total"]), str(stored["directory"]), *problems, tags)


def failure_from(stored: Mapping[str, Any] | None) -> Failure | None:
    """A failure as an archive or a module result holds it, perhaps of another version of this collection."""
    if not stored:
        return None
    kind = str(stored.get("kind"))
    known = failures.failure(kind if kind in failures.WHAT_TO_DO else "unknown", str(stored.get("reason") or ""))
    return dataclasses.replace(
        known, lines=tuple(stored.get("lines") or ()), todo=str(stored.get("todo") or known.todo)
    )
