# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the archive of a job, ``<shared_root>/jobs/<submission_id>/``. docs/archive.md has its files."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ..io import reading, writing
from ..io.output import one_line
from ..io.reading import MIB, UnreadableError
from ..io.schema import MalformedError, json_text, parse
from ..io.writing import DIRECTORY_MODE
from . import checkpoints, metrics
from .plan import Plan
from .status import JobState, Status

# These variables mark a process as part of a job. Other processes must not inherit them: with Ray's variable, another
# ray.init would replace the job's driver in Ray's record.
JOB_VARIABLE = "ARGUS_VERL_JOB"
JOB_CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
JOB_VARIABLES = (JOB_VARIABLE, JOB_CONFIG_VARIABLE)
# The heartbeat of the steward.
STEWARD_HEARTBEAT = "steward.json"
# The errors that the steward and the processes that it starts print.
STEWARD_LOG = "logs/steward.log"
# The age from which a heartbeat counts as missing; a shared root may hang for a while.
MAX_HEARTBEAT_AGE_SECONDS = 60.0
# verl writes the addresses of a job's inference servers here, as a Prometheus configuration.
ENGINE_ADDRESSES = "config/prometheus.yml"
# The working directory of a job that is a command.
OUTPUT_DIRECTORY = "output"
DIRECTORIES = ("config", "logs", "checkpoints", "debug")
# The maximum sizes of ``status.json``, which has the reasons of up to 100 attempts, and of other files that are read.
MAX_STATUS_BYTES, MAX_FILE_BYTES = MIB, 4 * MIB
STOP_REQUESTED = "config/stop_requested"
MAX_REQUESTER_CHARS = 200
# The ids of jobs, and so the names of archives.
SUBMISSION_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
LOG_PART = re.compile(r"driver\.log(?:\.(?P<number>[1-9][0-9]{0,8}))?")
Value = TypeVar("Value")


def now() -> str:
    """UTC, to the millisecond, sortable as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Heartbeat:
    """The launcher's heartbeat, written every 2 seconds while its trainer runs. Times are by the launcher's clock."""

    time: float | None = None
    step: int | None = None
    total_steps: int | None = None
    # The first step of this attempt, and when it was done.
    first_step: int | None = None
    first_step_at: float | None = None
    # The Phase before the first step; "" after that step.
    phase: str = ""
    # The reason why the trainer counts as stalled; "" if it does not.
    stalled: str = ""


@dataclass(frozen=True)
class StewardHeartbeat:
    """The heartbeat of the job's steward, ``steward.json``; "" means that there is nothing to tell."""

    time: float = 0
    # The names of the head and of its cluster, and the steward's process id.
    host: str = ""
    cluster: str = ""
    pid: int = 0
    # What the job waits for, such as "waits for …". No other file has it.
    notice: str = ""
    # The message about an inference server of the current attempt that died.
    engine: str = ""
    # The address of the driver's node.
    address: str = ""
    # The position in the cluster's queue, from 1; None if the job is not in it, or waits for another job.
    place: int | None = None

    @property
    def is_recent(self) -> bool:
        return abs(time.time() - self.time) < MAX_HEARTBEAT_AGE_SECONDS


class Archive:
    """One job's directory. Files appear complete or not at all.

    Jobs can write to archives, so only regular files of limited size are read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def submission_id(self) -> str:
        return self.path.name

    @property
    def jobs(self) -> Path:
        return self.path.parent

    @property
    def driver_log(self) -> Path:
        return self.path / "logs" / "driver.log"

    def exists(self) -> bool:
        """Whether the archive is a directory, and not a link to one."""
        reading.refresh_nfs_cache(self.path)
        with contextlib.suppress(OSError):
            return stat.S_ISDIR(os.lstat(self.path).st_mode)
        return False

    def has_status(self) -> bool:
        """Whether the job has a status: a submission writes it after all else."""
        return reading.exists(self.path / "status.json")

    def created_at(self) -> float:
        """When the archive was created, at most now. The JobSpec is the file that is written first, and only once."""
        created = 0.0
        for path in (self.path, self.path / "config/job_spec.json"):
            with contextlib.suppress(OSError):
                created = os.lstat(path).st_mtime
        return min(max(0.0, created), time.time())

    def reserve(self) -> None:
        """Create the archive. Raises FileExistsError if its id is taken, also by a process at the same time."""
        self.jobs.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(DIRECTORY_MODE)
        for name in DIRECTORIES:
            (self.path / name).mkdir(DIRECTORY_MODE)

    def write_text(self, name: str, text: str, durable: bool = True) -> None:
        """Write a file, completely or not at all. durable: wait until it is on the disk."""
        writing.write_text(self.path / name, text, durable)

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json_text(value, indent=2) + "\n")

    def write_heartbeat(self, name: str, **details: Any) -> None:
        """Write a small file that is soon written again, without waiting for the disk."""
        self.write_text(name, json_text(details) + "\n", durable=False)

    def append(self, name: str, text: str) -> None:
        """Append to a file in one write, so that lines of two writers do not mix. Raises OSError."""
        writing.append(self.path / name, text)

    def open(self, name: str) -> BinaryIO:
        return reading.open_file(self.path / name)

    def read_text(self, name: str, limit: int = MAX_FILE_BYTES) -> str:
        return reading.read_text(self.path / name, limit)

    def read_mapping(self, name: str) -> dict[str, Any]:
        """The mapping in a JSON file; empty if the file does not exist, is unreadable or has another value."""
        try:
            return reading.read_mapping(self.path / name, MAX_FILE_BYTES)
        except (FileNotFoundError, UnreadableError):
            return {}

    def read_jobspec(self) -> dict[str, Any]:
        """The JobSpec as its author wrote it; empty if there is none that is readable."""
        return self.read_mapping("config/job_spec.json")

    def plan(self) -> Plan | None:
        """The job's plan; None if the submission failed before the plan was written. Raises UnreadableError."""
        return self.read_typed("config/plan.json", Plan)

    def read_typed(self, name: str, kind: type[Value], limit: int = MAX_FILE_BYTES) -> Value | None:
        """The JSON file with that name as a dataclass; None if it does not exist. Raises UnreadableError."""
        try:
            return parse(kind, reading.read_json(self.path / name, limit))
        except FileNotFoundError:
            return None
        except MalformedError as error:
            raise UnreadableError(self.path / name, f"is malformed: {error}") from error

    def status_json(self) -> dict[str, Any]:
        """The status as it is stored; empty if the archive has none yet, or none that is readable."""
        return self.read_mapping("status.json")

    def read_status(self) -> Status:
        """The status; empty if the archive has none yet. Raises UnreadableError."""
        return self.read_typed("status.json", Status, MAX_STATUS_BYTES) or Status()

    def state(self) -> JobState | None:
        """The state; None if the archive has none yet, or none that is readable."""
        try:
            return self.read_status().state
        except UnreadableError:
            return None

    def set_status(self, state: str, **details: Any) -> None:
        """Change the state and these details in ``status.json``, and record an event; other details stay.

        One process writes it at a time: the submission, then the steward until an attempt runs, then the attempt's
        launcher until it ends, then the steward again.
        """
        if "reason" in details:
            details["reason"] = one_line(details["reason"])
        status = {
            **self.status_json(),
            **details,
            "submission_id": self.submission_id,
            "state": state,
            "updated_at": now(),
        }
        self.write_json("status.json", status)
        # The change is already written; a retry after a failed event would count an attempt twice.
        with contextlib.suppress(OSError):
            self.event(state, **{name: value for name, value in details.items() if name != "attempts"})

    def close(self) -> None:
        """Mark the archive as complete; nothing is written to it afterwards."""
        self.write_json("status.json", {**self.status_json(), "closed_at": now()})
        self.event("CLOSED")

    def event(self, kind: str, **details: Any) -> None:
        self.append("events.jsonl", json_text({"time": now(), "event": kind, **details}) + "\n")

    def log_parts(self) -> dict[int, Path]:
        """The parts of the driver's log by permanent numbers, oldest first: driver.log.1, .2, …, driver.log.

        driver.log has the number that its name will get. Raises UnreadableError.
        """
        matches = map(LOG_PART.fullmatch, reading.list_directory(self.path / "logs"))
        parts = {int(match["number"] or 0): self.path / "logs" / match[0] for match in matches if match}
        current = parts.pop(0, None)
        if current:
            parts[max(parts, default=0) + 1] = current
        return dict(sorted(parts.items()))

    def read_end(self, parts: Mapping[int, Path], size: int) -> tuple[bytes, str]:
        """The last `size` bytes of these parts of the log, and the position after them, ``PART:BYTE``.

        Raises FileNotFoundError, UnreadableError and OSError.
        """
        data, position = b"", ""
        for number in sorted(parts, reverse=True):
            with self.open(f"logs/{parts[number].name}") as log:
                begin = max(0, log.seek(0, os.SEEK_END) - (size - len(data)))
                log.seek(begin)
                # The log may grow meanwhile.
                part = log.read(size - len(data))
            position = position or f"{number}:{begin + len(part)}"
            data = part + data
            if len(data) >= size:
                break
        return data, position

    def log_tail(self, size: int) -> str:
        """The last `size` bytes of the driver's log, as text; empty if it is unreadable."""
        with contextlib.suppress(FileNotFoundError, UnreadableError):
            return self.read_end(self.log_parts(), size)[0].decode(errors="replace")
        return ""

    def metrics_file(self, attempt: int) -> Path:
        """The metrics file of an attempt. Each has its own: verl's file logger truncates its file at every start."""
        return self.path / "logs" / f"metrics-{attempt}.jsonl"

    def last_step(self) -> int:
        """The last step of the job, from the ends of its metrics files; 0 without one. Never raises."""
        with contextlib.suppress(FileNotFoundError, UnreadableError):
            for file in reversed(metrics.files(self.path)):
                steps = metrics.last_steps(file, metrics.MAX_LINE_BYTES)
                if steps:
                    return max(step.number for step in steps)
        return 0

    def heartbeat(self) -> Heartbeat:
        """The last heartbeat of the launcher; without values if there is none that is readable."""
        with contextlib.suppress(UnreadableError):
            return self.read_typed("heartbeat.json", Heartbeat) or Heartbeat()
        return Heartbeat()

    def steward_heartbeat(self) -> StewardHeartbeat | None:
        """The last heartbeat of the job's steward; None if there is none that is readable."""
        with contextlib.suppress(UnreadableError):
            return self.read_typed(STEWARD_HEARTBEAT, StewardHeartbeat)
        return None

    def has_steward(self) -> bool:
        heartbeat = self.steward_heartbeat()
        return heartbeat is not None and heartbeat.is_recent

    def needs_steward(self) -> bool:
        """Whether a steward has to look after the job: from the submission to the closing. Raises UnreadableError."""
        return reading.exists(self.path / STEWARD_HEARTBEAT) and not self.read_status().closed_at

    def ask_to_stop(self, who: str = "") -> None:
        """Ask the steward and the launcher to end the job and not to retry it. who: ``user@controller``, or ""."""
        self.append(STOP_REQUESTED, f"{' '.join(who.split())[:MAX_REQUESTER_CHARS]}\n" if who else "")

    def stop_requested(self) -> bool:
        return reading.exists(self.path / STOP_REQUESTED)

    def stop_requested_by(self) -> str:
        """Who asked for the job's end first; "" if unknown. Jobs can write this file."""
        with contextlib.suppress(FileNotFoundError, UnreadableError):
            return self.read_text(STOP_REQUESTED).partition("\n")[0][:MAX_REQUESTER_CHARS]
        return ""

    def checkpoints(self) -> list[int]:
        """The steps that have a checkpoint directory, in ascending order. Raises UnreadableError."""
        return checkpoints.steps_in(self.path / "checkpoints")[::-1]


def archives(jobs: Path) -> list[Archive]:
    """All archives of a directory; other entries are ignored. Raises UnreadableError."""
    return [Archive(jobs / name) for name in sorted(reading.list_directory(jobs, kind=is_archive))]


def is_archive(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory with the name of a job, and not a link to one."""
    return bool(SUBMISSION_ID.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)
