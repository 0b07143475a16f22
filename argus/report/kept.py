# SPDX-License-Identifier: GPL-3.0-or-later
"""The page in an archive, which is made again when the archive has something new."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ..archive.archive import Archive
from ..io.writing import write_text
from ..jobs.bundle import PAGE
from ..queue import attempts
from .data import read_job
from .page import page

SOURCES = ("status.json", "events.jsonl", "logs/driver.log")


def changed_at(archive: Archive) -> int:
    """When what a page shows was last written, in nanoseconds. Raises UnreadableError."""
    metrics = archive.metrics_file(attempts.current(archive))
    return max(modified(path) for path in (*(archive.path / name for name in SOURCES), metrics))


def modified(path: Path) -> int:
    with contextlib.suppress(OSError):
        return os.lstat(path).st_mtime_ns
    return 0


def write_page(archive: Archive) -> bool:
    """Write the page of a job into its archive; False if the one there is as new as the archive.

    Raises OSError, and UnreadableError.
    """
    # Before it is read: what is written meanwhile is in the next page. No clock is compared with that of a server.
    newest = changed_at(archive)
    target = archive.path / PAGE
    if modified(target) == newest:
        return False
    write_text(target, page([read_job(archive)], time.time()), durable=False)
    os.utime(target, ns=(newest, newest), follow_symlinks=False)
    return True
