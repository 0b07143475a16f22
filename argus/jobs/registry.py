# SPDX-License-Identifier: Apache-2.0
"""The registry of submitted jobs with their JobSpecs, in a directory that only the head sees.

An archive lies where jobs write, so it cannot tell what its job was, or whether this cluster has submitted it. One file
for each job, ``<submission_id>.json``. Whether an id is taken is decided by its archive, not here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..archive.archive import SUBMISSION_ID
from ..io.reading import MIB, UnreadableError, read_json
from ..io.schema import MalformedError, parse
from ..io.writing import write_text
from ..queue.demand import Limit
from ..ray.admission import registry_path

SUFFIX = ".json"
# A JobSpec has at most 1 MiB; JSON may escape each of its characters.
MAX_ENTRY_BYTES = 8 * MIB


@dataclass(frozen=True)
class RegisteredJob:
    """One job as it was submitted.

    submitted_at: seconds since the epoch.
    jobspec: as its author wrote it.
    shared_root: the one that has the job's archive.
    address: of the Jobs API, as the inventory gives it.
    notify: what tells people about the job, a command or an address; it may have a secret.
    limits: of the jobs with one of its tags.
    defaults: the inventory's keys of a JobSpec, for a job that is checked again.
    """

    submission_id: str
    submitted_at: float
    jobspec: Mapping[str, Any]
    shared_root: str
    address: str = ""
    notify: str = field(default="", repr=False)
    limits: tuple[Limit, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


class Registry:
    def __init__(self, path: str | Path | None = None) -> None:
        """path: by default, that of this head."""
        self.path = Path(path or registry_path())

    def read(self, submission_id: str) -> RegisteredJob | None:
        """A job; None if it is not registered. Raises UnreadableError for anything but an entry of this job."""
        if not SUBMISSION_ID.fullmatch(submission_id):
            return None
        file = self.path / f"{submission_id}{SUFFIX}"
        try:
            job = parse(RegisteredJob, read_json(file, MAX_ENTRY_BYTES))
        except FileNotFoundError:
            return None
        except MalformedError as error:
            raise UnreadableError(file, f"is malformed: {error}") from error
        if job.submission_id != submission_id:
            raise UnreadableError(file, "belongs to another job")
        return job

    def write(self, job: RegisteredJob) -> None:
        """Register a job whose archive was just created; on the disk when this returns."""
        if not SUBMISSION_ID.fullmatch(job.submission_id):
            raise ValueError(f"{job.submission_id!r} is not a submission id")
        # Only the head has the directory.
        self.path.stat()
        write_text(self.path / f"{job.submission_id}{SUFFIX}", json.dumps(asdict(job), indent=2) + "\n")

    def remove(self, submission_id: str) -> None:
        """Forget a job whose archive is gone: its id is free."""
        if SUBMISSION_ID.fullmatch(submission_id):
            (self.path / f"{submission_id}{SUFFIX}").unlink(missing_ok=True)

    def ids(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            ids = [path.name.removesuffix(SUFFIX) for path in self.path.iterdir() if path.name.endswith(SUFFIX)]
            return sorted(filter(SUBMISSION_ID.fullmatch, ids))
        return []
