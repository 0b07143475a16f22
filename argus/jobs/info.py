# SPDX-License-Identifier: Apache-2.0
"""The types in which the status of jobs travels: from archive and head into ray_job_info, and from there to reports."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ..archive.archive import MAX_HEARTBEAT_AGE_SECONDS
from ..archive.failures import Failure
from ..archive.job_warnings import JobWarning
from ..archive.status import Attempt
from ..io.schema import parse

# The state of a job whose archive has no status.json yet.
UNKNOWN = "UNKNOWN"
# The state of a job whose status.json cannot be read.
UNREADABLE = "UNREADABLE"


class JsonRecord:
    def to_json(self: Any) -> dict[str, Any]:
        """The values as lists and plain text only, for a result of Ansible."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self))))

    @classmethod
    def from_json(cls, stored: object) -> Self:
        return parse(cls, stored)


@dataclass(frozen=True)
class Progress:
    """How far a job is, the first and the last value of its key metric, and its throughput.

    trend: values of the metric up to the last one, evenly distributed. tokens_per_second: of all GPUs together.
    tokens_per_second_per_gpu: as verl measures it. seconds: of the parts of the last step, by verl's names.
    validation: what a job that trains nothing has measured, by verl's names.
    """

    step: int = 0
    total_steps: int | None = None
    metric: str = ""
    first: float | None = None
    last: float | None = None
    trend: tuple[float, ...] = ()
    tokens_per_second: float | None = None
    tokens_per_second_per_gpu: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JobInfo(JsonRecord):
    """The result of ray_job_info for one job. plugins/modules/ray_job_info.py documents each field.

    state: a JobState, Ray's PENDING, UNKNOWN or UNREADABLE.
    unreadable: the parts of the archive that could not be read, with the reasons.
    notice: what the job waits for, according to its steward, or that it has none.
    head_away_for: for how many seconds the head has been away; None if it answers, or never looked after the job.
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
    phases: Mapping[str, float] = field(default_factory=dict)
    submitted_at: float = 0.0
    submitted_by: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    silent_for: float | None = None
    time_left: float | None = None
    gpu_percent: float | None = None
    # The URL of a server that answers.
    address: str = ""
    driver_host: str | None = None
    driver_node_id: str | None = None
    driver_node_ip: str | None = None
    progress: Progress = Progress()
    checkpoints: tuple[int, ...] = ()
    models: tuple[int, ...] = ()
    resumable: int | None = None
    archive: str = ""
    log: tuple[str, ...] = ()
    log_position: str = ""
    problem: str = ""
    head_away_for: float | None = None
    # Why nothing can be written to the shared root, and when the job's processes last wrote to the archive.
    root_problem: str = ""
    written_at: float | None = None
    unreadable: tuple[str, ...] = ()
    notice: str = ""
    unattended: bool = False
    # In the queue, from 1; None for a job that waits for another one.
    place: int | None = None

    @property
    def is_silent(self) -> bool:
        return self.silent_for is not None and self.silent_for > MAX_HEARTBEAT_AGE_SECONDS

    @property
    def goes_on(self) -> bool:
        """Whether its launcher is known to run."""
        return self.silent_for is not None and not self.is_silent


@dataclass(frozen=True)
class JobList(JsonRecord):
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
