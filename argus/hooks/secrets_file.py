# SPDX-License-Identifier: Apache-2.0
"""The file that passes a job's secrets to its trainer: ``<shared_root>/jobs/.secrets/<submission_id>.json``, mode 0600.

It exists while the job lives. Every node can read it, also a node that joins later. Ray never transports the secrets.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ..io.reading import read_mapping

# The variable with the path of the job's archive, set for all processes of a job.
ARCHIVE_VARIABLE = "ARGUS_VERL_ARCHIVE"
# The directory beside the archives, which the user of the nodes certainly owns.
DIRECTORY = ".secrets"


def secrets_path(archive: Path) -> Path:
    return archive.parent / DIRECTORY / f"{archive.name}.json"


def store(archive: Path, values: Mapping[str, str]) -> None:
    """Write the values to a file that only the user of the nodes can read. Raises OSError."""
    file = secrets_path(archive)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    # A job may have left a file there that others can read.
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(dict(values), stream)


def load(archive: Path) -> dict[str, str]:
    """The job's secrets; empty if it has none, or if it has ended. Raises UnreadableError."""
    try:
        return read_mapping(secrets_path(archive))
    except FileNotFoundError:
        return {}


def forget(archive: Path) -> None:
    """Remove the job's secrets, if it has any. What a job has put in place of their directory has none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        secrets_path(archive).unlink()
