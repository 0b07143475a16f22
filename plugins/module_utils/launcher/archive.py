# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job archive on disk: ``<shared_root>/jobs/<submission_id>/``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SUBMITTED, RUNNING, SUCCEEDED, FAILED, STOPPED = "SUBMITTED", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"
ENDED = (SUCCEEDED, FAILED, STOPPED)
DIRECTORIES = ("config", "logs", "checkpoints", "debug")


def now() -> str:
    """UTC, to the millisecond, sortable as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Archive:
    """One job's directory. Files appear whole or not at all."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def submission_id(self) -> str:
        return self.path.name

    @property
    def driver_log(self) -> Path:
        return self.path / "logs" / "driver.log"

    def reserve(self) -> None:
        """Take the id; FileExistsError when it is taken. mkdir decides between two at the same moment."""
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
        """The value, or None when the file is not there or is of another kind."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def status(self) -> dict[str, Any]:
        return dict(self.read_json("status.json") or {})

    def set_status(self, state: str, **details: Any) -> None:
        """Change the state and what is known of the job; what was known before stays."""
        status = {**self.status(), **details, "submission_id": self.submission_id, "state": state, "updated_at": now()}
        self.write_json("status.json", status)
        self.event(state, **details)

    def close(self) -> None:
        """The last that is written: after it the archive is complete."""
        self.write_json("status.json", {**self.status(), "closed_at": now()})
        self.event("CLOSED")

    def event(self, kind: str, **details: Any) -> None:
        """Append to the job's life; one line in one write, so that two writers do not mix theirs."""
        line = json.dumps({"time": now(), "event": kind, **details}, ensure_ascii=False) + "\n"
        descriptor = os.open(self.path / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Every step's metrics: ``{"step": int, "data": {name: number}}``, attempts in their order."""
        files = sorted(self.path.glob("logs/metrics-*.jsonl"), key=lambda file: int(file.stem.rpartition("-")[2]))
        for file in files:
            with file.open(encoding="utf-8") as lines:
                for line in lines:
                    # The last line may be half written while the job runs.
                    if line.endswith("\n"):
                        yield json.loads(line)

    def checkpoints(self) -> list[int]:
        """The steps of which there is a checkpoint directory, in ascending order."""
        steps = (path.name.rpartition("_")[2] for path in self.path.glob("checkpoints/global_step_*"))
        return sorted(int(step) for step in steps if step.isdigit())
