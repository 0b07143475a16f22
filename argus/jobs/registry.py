# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of submitted jobs: what was submitted, in a directory that only the head sees.

An archive lies where jobs write, so it cannot tell what its job was, or whether this cluster has submitted it. One file
for each job, ``<submission_id>.json``. Whether an id is taken is decided by its archive, not here.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..jobspec.submission_id import SUBMISSION_ID
from ..launcher.admission import registry_path
from ..launcher.reading import MIB, UnreadableError, open_directory, read_mapping

ENDING = ".json"
# A JobSpec has at most 1 MiB; JSON may escape each of its characters.
ENTRY_BYTES = 8 * MIB


@dataclass(frozen=True)
class Registered:
    """One job as it was submitted.

    submitted_at: seconds since the epoch.
    jobspec: as its author wrote it.
    shared_root: the one that has the job's archive.
    address: of the Jobs API, as the inventory gives it.
    """

    submission_id: str
    submitted_at: float
    jobspec: Mapping[str, Any]
    shared_root: str
    address: str = ""


class Registry:
    """The submitted jobs of one cluster."""

    def __init__(self, path: str | Path | None = None) -> None:
        """path: by default, that of this head."""
        self.path = Path(path or registry_path())

    def read(self, submission_id: str) -> Registered | None:
        """A job; None if it is not registered. Raises UnreadableError for anything but an entry of this job."""
        if not SUBMISSION_ID.fullmatch(submission_id):
            return None
        name = f"{submission_id}{ENDING}"
        try:
            entry = read_mapping(self.path, name, ENTRY_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnreadableError(self.path, f"cannot be opened ({error.strerror})") from error
        problem = problem_of(entry, submission_id)
        if problem:
            raise UnreadableError(self.path / name, problem)
        at, root, address = float(entry["submitted_at"]), entry["shared_root"], str(entry.get("address") or "")
        return Registered(submission_id, at, entry["jobspec"], root, address)

    def write(self, job: Registered) -> None:
        """Register a job whose archive was just created; on the disk when this returns."""
        if not SUBMISSION_ID.fullmatch(job.submission_id):
            raise ValueError(f"{job.submission_id!r} is not a submission id")
        content = json.dumps({**asdict(job), "jobspec": dict(job.jobspec)}, indent=2) + "\n"
        directory = open_directory(self.path)
        # No id begins with a dot, so this is never read as an entry.
        temporary = f".{job.submission_id}.{secrets.token_hex(4)}"
        try:
            _write(directory, temporary, content.encode())
            os.rename(temporary, f"{job.submission_id}{ENDING}", src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)
        finally:
            os.close(directory)

    def ids(self) -> list[str]:
        """The ids of all registered jobs, sorted."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            ids = [path.name.removesuffix(ENDING) for path in self.path.iterdir() if path.name.endswith(ENDING)]
            return sorted(filter(SUBMISSION_ID.fullmatch, ids))
        return []


def problem_of(entry: Mapping[str, Any], submission_id: str) -> str:
    """Why this is not the entry of a job, or ""."""
    if entry.get("submission_id") != submission_id:
        return "belongs to another job"
    at = entry.get("submitted_at")
    if not isinstance(at, (int, float)) or isinstance(at, bool):
        return "has no submitted_at"
    if not isinstance(entry.get("jobspec"), dict):
        return "has no jobspec"
    return "" if isinstance(entry.get("shared_root"), str) else "has no shared_root"


def _write(directory: int, name: str, content: bytes) -> None:
    """A new file in a directory, on the disk when this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o640, dir_fd=directory), "wb") as file:
        # Whatever the umask is.
        os.fchmod(file.fileno(), 0o640)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
