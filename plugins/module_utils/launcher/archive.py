# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job archive on disk: ``<shared_root>/jobs/<submission_id>/``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .plan import Plan
from .status import Status

# The variables that mark a process as part of a job: other processes must not inherit them. With Ray's own, a further
# ray.init would replace the job's driver in Ray's record of the job.
JOB = "ARGUS_VERL_JOB"
JOB_ENV = (JOB, "RAY_JOB_CONFIG_JSON_ENV_VAR")
# The steward's heartbeat; the file is older than the name.
HEARTBEAT_OF_STEWARD = "keeper.json"
# The maximum age of a steward's heartbeat; a shared root may hang for a while.
SILENT_SECONDS = 60.0
READ_ATTEMPTS, READ_SECONDS = 5, 0.2
DIRECTORIES = ("config", "logs", "checkpoints", "debug")


def now() -> str:
    """UTC, to the millisecond, sortable as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Archive:
    """One job's directory. Files appear complete or not at all."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def submission_id(self) -> str:
        return self.path.name

    @property
    def driver_log(self) -> Path:
        return self.path / "logs" / "driver.log"

    def reserve(self) -> None:
        """Reserve the id; FileExistsError if it is taken. mkdir decides if two processes try at the same time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir()
        for name in DIRECTORIES:
            (self.path / name).mkdir()

    def write_text(self, name: str, text: str) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        """The value, or None if the file does not exist or is not JSON."""
        for _attempt in range(READ_ATTEMPTS):
            try:
                return json.loads((self.path / name).read_text(encoding="utf-8"))
            except (FileNotFoundError, ValueError):
                return None
            except OSError:
                # A network file system may have lost its handle of a file that was just replaced (ESTALE).
                time.sleep(READ_SECONDS)
        return None

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The values of a file with one JSON value per line; none if it does not exist."""
        try:
            text = (self.path / name).read_text(encoding="utf-8")
        except OSError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def plan(self) -> Plan | None:
        """The job's plan; None if the submission failed before the plan was written."""
        stored = self.read_json("config/plan.json")
        return Plan.from_json(stored) if isinstance(stored, dict) else None

    def status_json(self) -> dict[str, Any]:
        """The status as it is stored; empty if the archive has none yet."""
        return dict(self.read_json("status.json") or {})

    def read_status(self) -> Status:
        """The status; empty if the archive has none yet."""
        return Status.from_json(self.status_json())

    def set_status(self, state: str, **details: Any) -> None:
        """Change the state and the given details; other details stay.

        One process writes it at a time: the submission, then the steward until an attempt runs, then the attempt's
        launcher until it ends, then the steward again.
        """
        status = {
            **self.status_json(),
            **details,
            "submission_id": self.submission_id,
            "state": state,
            "updated_at": now(),
        }
        self.write_json("status.json", status)
        self.event(state, **{name: value for name, value in details.items() if name != "attempts"})

    def close(self) -> None:
        """Mark the archive as complete; nothing is written to it afterwards."""
        self.write_json("status.json", {**self.status_json(), "closed_at": now()})
        self.event("CLOSED")

    def event(self, kind: str, **details: Any) -> None:
        """Append an event: one line in one write, so that lines of two writers do not mix."""
        line = json.dumps({"time": now(), "event": kind, **details}, ensure_ascii=False) + "\n"
        descriptor = os.open(self.path / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def log_files(self) -> list[Path]:
        """The existing parts of the driver's log, oldest first: driver.log.1, .2, …, driver.log."""
        parts = [path for path in self.path.glob("logs/driver.log.*") if path.suffix[1:].isdigit()]
        parts.sort(key=lambda path: int(path.suffix[1:]))
        return [*parts, *([self.driver_log] if self.driver_log.exists() else [])]

    def log_tail(self, size: int) -> str:
        """The last `size` bytes of the driver's log, as text."""
        text = b""
        for path in reversed(self.log_files()):
            with path.open("rb") as log:
                wanted = size - len(text)
                log.seek(max(0, log.seek(0, os.SEEK_END) - wanted))
                # The file may grow meanwhile.
                text = log.read(wanted) + text
            if len(text) >= size:
                break
        return text.decode(errors="replace")

    def metrics_file(self, attempt: int) -> Path:
        """Each attempt has its own: verl's file logger truncates its file at every start."""
        return self.path / "logs" / f"metrics-{attempt}.jsonl"

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The metrics of each step, ``{"step": int, "data": {name: number}}``, in the order of steps.

        If several attempts did a step, the numbers of the last one count.
        """
        steps: dict[int, dict[str, Any]] = {}
        for file in sorted(self.path.glob("logs/metrics-*.jsonl"), key=lambda file: int(file.stem.rpartition("-")[2])):
            own = read_metrics(file)
            if own:
                # Steps of an earlier attempt beyond its last checkpoint are repeated. The step that this attempt
                # resumed from may be there as well, with a validation.
                first = min(own)
                own[first]["data"] = {**steps.get(first, own[first])["data"], **own[first]["data"]}
                steps = {step: entry for step, entry in steps.items() if step < first} | own
        for step in sorted(steps):
            yield steps[step]

    def write_heartbeat(self, name: str, **details: Any) -> None:
        """Write a small file that is soon written again; it is not worth waiting for the disk."""
        temporary = self.path / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(details) + "\n", encoding="utf-8")
        temporary.replace(self.path / name)

    def has_steward(self) -> bool:
        """Whether the job has a steward whose heartbeat is recent."""
        heartbeat = self.read_json(HEARTBEAT_OF_STEWARD) or {}
        return time.time() - float(heartbeat.get("time", 0)) < SILENT_SECONDS

    def needs_steward(self) -> bool:
        """Whether the archive is neither closed nor gone."""
        return (self.path / HEARTBEAT_OF_STEWARD).exists() and not self.read_status().closed_at

    def ask_to_stop(self) -> None:
        """Request the job's end: its steward or launcher ends it, and does not retry it."""
        (self.path / "config" / "stop_requested").touch()

    def stop_requested(self) -> bool:
        return (self.path / "config" / "stop_requested").exists()

    def checkpoints(self) -> list[int]:
        """The steps that have a checkpoint directory, in ascending order."""
        steps = (path.name.rpartition("_")[2] for path in self.path.glob("checkpoints/global_step_*"))
        return sorted(int(step) for step in steps if step.isdigit())


def read_metrics(file: Path) -> dict[int, dict[str, Any]]:
    """The metrics of one attempt by step, as `Archive.metrics` yields them."""
    steps: dict[int, dict[str, Any]] = {}
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            # The last line may be incomplete while the job runs, or if it was killed.
            if line.endswith("\n"):
                entry = json.loads(line)
                merged = steps.setdefault(int(entry["step"]), {"step": int(entry["step"]), "data": {}})
                merged["data"].update(entry["data"])
    return steps


def unclosed(jobs: Path) -> dict[str, dict[str, Any]]:
    """The last heartbeats of the stewards of jobs that are not closed, by submission id."""
    found = {}
    for file in sorted(jobs.glob(f"*/{HEARTBEAT_OF_STEWARD}")):
        archive = Archive(file.parent)
        if not archive.read_status().closed_at:
            found[archive.submission_id] = archive.read_json(HEARTBEAT_OF_STEWARD) or {}
    return found
