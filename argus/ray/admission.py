# SPDX-License-Identifier: Apache-2.0
"""Locks for work that only one process of a head does at a time.

This is the submission of a job, so that no other job takes the resources between the last check and the submission,
and the work of the steward.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# The registry of jobs, a directory that only the head sees: jobs cannot hold a lock there.
REGISTRY = "/var/lib/argus-verl/jobs"
# In the environment of a head without a container, which has it elsewhere.
REGISTRY_VARIABLE = "ARGUS_VERL_REGISTRY"
# No id of a job begins with a dot.
ADMISSION_LOCK, STEWARD_LOCK = ".admission.lock", ".steward.lock"
# A submission takes a second; a steward's may take two minutes on a busy head (program.RAY_CLIENT_SECONDS).
MAX_WAIT_SECONDS = 150.0
POLL_INTERVAL_SECONDS = 0.05
# The head starts the steward again within a second.
STEWARD_TIMEOUT_SECONDS = 5.0
NO_STEWARD = (
    "the steward of this cluster does not run, which looks after its jobs; the log of the head says why, and "
    "`argus steward` in the head starts it (docker exec -d HEAD argus steward)"
)


class BusyError(Exception):
    """Another submission did not end in time."""


def registry_path() -> str:
    """The registry of this head. That of a head without a container may begin with "~"."""
    return str(Path(os.environ.get(REGISTRY_VARIABLE) or REGISTRY).expanduser())


@contextlib.contextmanager
def lock_file(directory: str | Path, name: str) -> Iterator[int]:
    """The descriptor of a file in the registry; its lock ends with it."""
    descriptor = os.open(Path(directory) / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def steward_lock(directory: str | Path) -> Iterator[None]:
    with lock_file(directory, STEWARD_LOCK) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def steward_runs(directory: str | Path, seconds: float = STEWARD_TIMEOUT_SECONDS) -> bool:
    """Whether a steward of this head holds its lock, at once or within that time. Raises OSError."""
    deadline = time.monotonic() + seconds
    while True:
        with lock_file(directory, STEWARD_LOCK) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_SECONDS)


@contextlib.contextmanager
def one_at_a_time(
    directory: str | Path | None = None, seconds: float = MAX_WAIT_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Wait until no other process is here, and keep the others out. Raises BusyError after that time, and OSError."""
    with lock_file(directory or registry_path(), ADMISSION_LOCK) as descriptor:
        for _attempt in range(max(1, round(seconds / POLL_INTERVAL_SECONDS))):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            sleep(POLL_INTERVAL_SECONDS)
        else:
            raise BusyError(f"another submission did not end within {seconds:g} s")
        yield
