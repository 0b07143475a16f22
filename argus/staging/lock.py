# SPDX-License-Identifier: Apache-2.0
"""The lock of a target under the shared root: a file beside it, locked with flock, which works between machines.

The holder writes its progress into the file, as a heartbeat.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from ..io.reading import UnreadableError, parse_json, read_text
from .options import StagingError
from .progress import Progress, ProgressReport

LOCK_NAME = re.compile(r"\.(?P<name>.+)\.lock")
LOCK_RETRY_INTERVAL_SECONDS = 0.2
# A holder that is alive writes its progress more often, unless the shared root itself hangs.
HEARTBEAT_TIMEOUT_SECONDS = 600.0
# A report is far smaller.
MAX_REPORT_BYTES = 64 << 10
# The errors for a file that another machine has removed; NFS may report them at any use of it.
REMOVED_ERRNOS = (errno.ENOENT, errno.ESTALE)


def lock_file(target: Path) -> Path:
    """The path of the lock of a target."""
    return target.with_name(f".{target.name}.lock")


def read_progress(target: Path) -> ProgressReport | None:
    """The progress of the process that holds the lock of a target; None if there is none, or none is written yet."""
    file = lock_file(target)
    try:
        # The end of a longer text may still follow.
        line = read_text(file, MAX_REPORT_BYTES).partition("\n")[0]
        return ProgressReport.from_json(parse_json(line, file))
    except (OSError, UnreadableError):
        return None


def is_held(target: Path) -> bool:
    """Whether a process holds the lock of a target. This takes the lock for a moment; others then try again."""
    try:
        with open(lock_file(target), "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def hold_lock(target: Path) -> Iterator[Progress]:
    """Holds the lock of a target, and writes the yielded progress into it. The kernel frees it if the holder dies.

    Raises StagingError if another holder sends no heartbeat any more.
    """
    file = lock_file(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(wait_for_lock(target, file), "rb") as lock:
        progress = Progress(lock.fileno())
        try:
            with progress.write_heartbeats():
                yield progress
        finally:
            file.unlink(missing_ok=True)


def wait_for_lock(target: Path, file: Path) -> int:
    """Waits until the lock is free. Returns a descriptor of the locked file; closing it frees the lock."""
    silent_since, last = time.monotonic(), None
    while (lock := try_lock(file)) is None:
        report = read_progress(target)
        if report != last:
            silent_since, last = time.monotonic(), report
        if time.monotonic() - silent_since > HEARTBEAT_TIMEOUT_SECONDS:
            holder = f"{last.host}, process {last.pid}" if last else "another process"
            problem = f"is being staged by {holder}, which has sent no heartbeat for {HEARTBEAT_TIMEOUT_SECONDS:.0f} s."
            raise StagingError(target, problem, "Find out what that process waits for, or end it.")
        time.sleep(LOCK_RETRY_INTERVAL_SECONDS)
    return lock


def try_lock(file: Path) -> int | None:
    """A descriptor of the locked file; None if another process holds the lock, or has removed the file meanwhile."""
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return None
    is_ours = False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # This makes NFS ask its server for the names; otherwise it answers from its cache for some seconds.
        os.close(os.open(file.parent, os.O_RDONLY))
        # The previous holder may have removed the file that was opened here.
        is_ours = os.path.samestat(os.fstat(lock), file.lstat())
    except OSError as error:
        # Other errors do not mean that the lock is held, such as ENOLCK of a file system without locks.
        if error.errno not in (errno.EAGAIN, errno.EACCES, *REMOVED_ERRNOS):
            raise
    finally:
        if not is_ours:
            os.close(lock)
    return lock if is_ours else None
