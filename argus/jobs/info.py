# SPDX-License-Identifier: Apache-2.0
"""The types that describe jobs. Nodes send them as JSON to the controller, which returns and prints them."""

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
        """The fields as mappings, lists and plain values only, as a result of Ansible needs them."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self))))

    @classmethod
    def from_json(cls, stored: object) -> Self:
        return parse(cls, stored)


@dataclass(frozen=True)
class Progress:
    """How far a job is, its key metric, and its throughput. None: not known, or not yet."""

    step: int = 0
    total_steps: int | None = None
    metric: str = ""
    first: float | None = None
    last: float | None = None
    # Values of the key metric up to the last one, evenly distributed over the last steps.
    trend: tuple[float, ...] = ()
    # Of all GPUs together, for SFT.
    tokens_per_second: float | None = None
    # As verl measures it, for PPO and GRPO.
    tokens_per_second_per_gpu: float | None = None
    # The seconds of each part of the last step, by verl's names.
    seconds: Mapping[str, float] = field(default_factory=dict)
    # The metrics of an eval job, which trains nothing, by verl's names.
    validation: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JobInfo(JsonRecord):
    """The result of ray_job_info for one job; plugins/modules/ray_job_info.py documents each field.

    Times are in seconds since the epoch. Empty, or None where None is allowed: unknown, or not the case.
    """

    submission_id: str
    # A JobState, Ray's PENDING, UNKNOWN or UNREADABLE.
    state: str
    # Whether the job has ended and its archive is complete.
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
    # What a running job does before its first step, and the seconds of the phases that are over.
    phase: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)
    submitted_at: float = 0.0
    submitted_by: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    # Of a running job: seconds since its launcher's last heartbeat, estimated seconds to its end, use of its GPUs.
    silent_for: float | None = None
    time_left: float | None = None
    gpu_percent: float | None = None
    # The URL of a server that answers.
    address: str = ""
    # The node of the driver. Ray's id and address of it are known while the head knows the job.
    driver_host: str | None = None
    driver_node_id: str | None = None
    driver_node_ip: str | None = None
    progress: Progress = Progress()
    # The steps of complete checkpoints, and of those without what a job resumes with. Only with_checkpoints sets them.
    checkpoints: tuple[int, ...] = ()
    models: tuple[int, ...] = ()
    # The step from which a job that has failed or was stopped can resume.
    resumable: int | None = None
    archive: str = ""
    log: tuple[str, ...] = ()
    log_position: str = ""
    problem: str = ""
    # For how many seconds the head has been away; None if it answers, or never looked after the job.
    head_away_for: float | None = None
    root_problem: str = ""
    written_at: float | None = None
    unreadable: tuple[str, ...] = ()
    # What the job waits for, according to its steward, or that it has none.
    notice: str = ""
    # Whether neither a steward nor a launcher looks after the job.
    unattended: bool = False
    # The place in the queue, from 1; None for a job that waits for another one.
    place: int | None = None

    @property
    def is_silent(self) -> bool:
        return self.silent_for is not None and self.silent_for > MAX_HEARTBEAT_AGE_SECONDS

    @property
    def goes_on(self) -> bool:
        return self.silent_for is not None and not self.is_silent


@dataclass(frozen=True)
class JobList(JsonRecord):
    jobs: tuple[JobInfo, ...]
    total: int
    directory: str
    problem: str = ""
    root_problem: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)
