# SPDX-License-Identifier: Apache-2.0
"""The registry: the jobs that this cluster has submitted, with their JobSpecs, in a directory that only the head sees.

Jobs can write to archives, so an archive proves neither what its job was nor which cluster has submitted it. Each job
has a file ``<submission_id>.json``. Whether an id is taken is decided by its archive, not here.
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
    submission_id: str
    # In seconds since the epoch.
    submitted_at: float
    jobspec: Mapping[str, Any]
    shared_root: str
    address: str = ""
    # A command or an address that tells people about the job; it may contain a secret.
    notify: str = field(default="", repr=False)
    # The limits of the inventory for jobs with one of its tags.
    limits: tuple[Limit, ...] = ()
    # The inventory's keys of a JobSpec, for a job that is checked again; empty for others.
    defaults: Mapping[str, Any] = field(default_factory=dict)


class Registry:
    def __init__(self, path: str | Path | None = None) -> None:
        """path: the directory of the registry; by default that of this head."""
        self.path = Path(path or registry_path())

    def read(self, submission_id: str) -> RegisteredJob | None:
        """The entry of a job; None if it is not registered. Raises UnreadableError for a file with anything else."""
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
        """Register a job whose archive was just created. The entry is on the disk when this returns."""
        if not SUBMISSION_ID.fullmatch(job.submission_id):
            raise ValueError(f"{job.submission_id!r} is not a submission id")
        # Only the head has the directory: raise FileNotFoundError elsewhere, rather than create it.
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
