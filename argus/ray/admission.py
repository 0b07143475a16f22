# SPDX-License-Identifier: Apache-2.0
"""Locks for work that only one process of a head may do at a time: submitting a job, and the work of the steward.

While one process submits, no other job can take the resources between the last check and the submission. The locks are
files in the registry.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# The registry of jobs, a directory that only the head sees, so that no job can hold a lock in it.
REGISTRY = "/var/lib/argus-verl/jobs"
# The variable with another place of the registry, for a head without a container.
REGISTRY_VARIABLE = "ARGUS_VERL_REGISTRY"
# The files that are locked, in the registry, where no id of a job begins with a dot.
ADMISSION_LOCK, STEWARD_LOCK = ".admission.lock", ".steward.lock"
# A submission takes a second; one by the steward may take two minutes on a busy head (program.RAY_CLIENT_SECONDS).
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
    """The path of this head's registry. The variable may begin with "~"."""
    return str(Path(os.environ.get(REGISTRY_VARIABLE) or REGISTRY).expanduser())


@contextlib.contextmanager
def lock_file(directory: str | Path, name: str) -> Iterator[int]:
    """Open a file of the registry to lock it. Closing the descriptor ends the lock."""
    descriptor = os.open(Path(directory) / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def steward_lock(directory: str | Path) -> Iterator[None]:
    """Wait until no other steward of this head runs, and keep others out."""
    with lock_file(directory, STEWARD_LOCK) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def steward_runs(directory: str | Path, seconds: float = STEWARD_TIMEOUT_SECONDS) -> bool:
    """Whether a steward of this head runs, or starts within that time. Raises OSError."""
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
def admission_lock(
    directory: str | Path | None = None, seconds: float = MAX_WAIT_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Wait until no other process submits, and keep others out. Raises BusyError after that time, and OSError."""
    with lock_file(directory or registry_path(), ADMISSION_LOCK) as descriptor:
        for _attempt in range(max(1, round(seconds / POLL_INTERVAL_SECONDS))):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            sleep(POLL_INTERVAL_SECONDS)
        else:
            raise BusyError(f"another submission did not end within {seconds:g} s")
        yield
