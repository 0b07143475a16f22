# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks across machines: one holds a lock for a while, the others must not get it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from ..network import background
from ..network.background import Background
from .trial import trial

LockCall = Callable[[int, int], Any]
# Both are in use: flock by staging and jobs, fcntl by SQLite and by what datasets and Hugging Face download.
KINDS: dict[str, LockCall] = {"flock": fcntl.flock, "fcntl": fcntl.lockf}
OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
SECONDS_TO_LOCK = 10


class Lock(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """HELD: another process has it, as it should be. FREE: this machine got it, too. UNSUPPORTED: an error."""

    HELD = "held"
    FREE = "free"
    UNSUPPORTED = "unsupported"


def hold(shared_root: Path, token: str, seconds: int) -> dict[str, Any]:
    """Take both kinds of locks, and hold them in a process of its own; return it, and the kinds that it holds."""
    with trial(shared_root, token, create=True) as directory:
        files = {kind: os.open(f"lock-{kind}", OPEN, 0o644, dir_fd=directory) for kind in KINDS}
    reading, writing = os.pipe()
    # Locks of fcntl belong to a process, and are not inherited: the child takes them itself.
    process = background.start(lambda: _hold(files, writing), [*files.values(), writing], seconds)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        held = pipe.read().decode().split()
    for descriptor in files.values():
        os.close(descriptor)
    return {"process": asdict(process), "held": held}


def _hold(files: dict[str, int], writing: int) -> None:
    held = [kind for kind, descriptor in files.items() if try_lock(KINDS[kind], descriptor) == Lock.FREE]
    os.write(writing, " ".join(held).encode())
    os.close(writing)
    signal.pause()


def release(process: Background) -> bool:
    return background.end(process)


def contend(shared_root: Path, token: str) -> dict[str, str]:
    """Try to get the locks that another machine holds."""
    found = {}
    with trial(shared_root, token) as directory:
        for kind, call in KINDS.items():
            try:
                descriptor = os.open(f"lock-{kind}", OPEN & ~os.O_CREAT, dir_fd=directory)
            except OSError:
                # It is not visible here, which is a finding of its own.
                continue
            try:
                found[kind] = try_lock(call, descriptor).value
            finally:
                os.close(descriptor)
    return found


def try_lock(call: LockCall, descriptor: int) -> Lock:
    """Try once. A server without a lock manager may not answer at all: a signal ends the call."""
    before = signal.signal(signal.SIGALRM, _interrupt)
    left = signal.alarm(SECONDS_TO_LOCK)
    try:
        call(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return Lock.HELD if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else Lock.UNSUPPORTED
    finally:
        signal.signal(signal.SIGALRM, before)
        # The end of this process, if it has one.
        signal.alarm(left)
    return Lock.FREE


def _interrupt(_number: int, _frame: object) -> None:
    raise TimeoutError(errno.ETIMEDOUT, "no answer from the lock manager")
