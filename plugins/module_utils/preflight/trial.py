# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial of the shared root: each machine writes a file, and looks for the files and locks of the others.

The machines meet in a directory with a random name. The module machine_info runs each step on each machine, as the
nodes' user. storage.py judges the results.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

# Directories below the shared root for the trial. Nodes can write to "user", which cluster_up creates.
PLACES = ("user", ".")
DIRECTORY_PREFIX = ".argus-verl-trial-"
TOKEN_FORM = re.compile("[0-9a-f]{16,64}")
MAX_CONTENT_BYTES = 256
# NFS may cache for a minute that a file does not exist.
LOOK_SECONDS = 70.0
# Both are in use: flock by staging and jobs, fcntl by SQLite and by what datasets and Hugging Face download.
LOCKS: dict[str, Callable[[int, int], Any]] = {"flock": fcntl.flock, "fcntl": fcntl.lockf}
LOCK_SECONDS = 10
# A later trial removes the directory of an interrupted one of this age.
OLD_SECONDS = 3600.0
# More descriptors than a module has open.
MAX_DESCRIPTORS = 1024


class TrialError(Exception):
    """The trial is not possible; the message says why."""


class Trial:
    """The part of one machine, host, in a trial. Each public method is a step. The first of hosts holds the locks."""

    def __init__(self, shared_root: Path, token: str, host: str, hosts: Sequence[str]) -> None:
        if not TOKEN_FORM.fullmatch(token):
            raise TrialError("the token of a trial is 16 hexadecimal digits or more")
        places = [shared_root / name for name in PLACES]
        place = next((directory for directory in places if os.access(directory, os.W_OK | os.X_OK)), None)
        if place is None:
            raise TrialError(f"user {os.geteuid()} can write neither there nor to its directory {PLACES[0]}")
        self._directory = place / f"{DIRECTORY_PREFIX}{token}"
        self._token, self._host, self._hosts = token, host, hosts

    def _file(self, host: str, kind: str) -> Path:
        return self._directory / f"{quote(host, safe='')}.{kind}"

    def _content(self, host: str) -> bytes:
        return f"{self._token} {host}"[:MAX_CONTENT_BYTES].encode()

    def written(self) -> dict[str, Any]:
        """Write the file that the other machines look for, and hold the locks."""
        self._directory.mkdir(exist_ok=True)
        file, new = self._file(self._host, "host"), self._file(self._host, "new")
        for path, content in ((file, b"not this"), (new, self._content(self._host))):
            with path.open("xb") as opened:
                opened.write(content)
        new.replace(file)
        held = {"locks": self._hold_locks(300 + 30 * len(self._hosts))} if self._host == self._hosts[0] else {}
        return {
            "uid": os.geteuid(),
            "seen_uid": file.stat().st_uid,
            "renamed": _read_content(file) == self._content(self._host),
            **held,
        }

    def compared(self) -> dict[str, Any]:
        """Look for the files of all others, and try to get the locks."""
        seen = self._look_for_files(LOOK_SECONDS)
        return {"seen": seen, "locks": {} if self._host == self._hosts[0] else self._lock_states()}

    def removed(self) -> dict[str, Any]:
        """Remove the trial, and old interrupted ones. Without its file, the process that holds the locks ends."""
        for directory in self._directory.parent.glob(f"{DIRECTORY_PREFIX}*"):
            with suppress(OSError):
                if directory != self._directory and time.time() - directory.stat().st_mtime > OLD_SECONDS:
                    shutil.rmtree(directory, ignore_errors=True)
        for _attempt in range(20):
            # On NFS, a file that is still open keeps its directory.
            shutil.rmtree(self._directory, ignore_errors=True)
            if not self._directory.exists():
                break
            time.sleep(0.2)
        return {}

    def _look_for_files(self, seconds: float) -> dict[str, Any]:
        """Return by host after how many seconds its file appeared, its owner, and whether the content is right."""
        begin = time.monotonic()
        missing = [host for host in self._hosts if host != self._host]
        seen: dict[str, Any] = {}
        while missing and time.monotonic() - begin < seconds:
            with suppress(OSError):
                # The directory is opened each time: NFS then asks the server whether it has changed.
                names = {path.name for path in self._directory.iterdir()}
                for host in [host for host in missing if self._file(host, "host").name in names]:
                    seen[host] = self._read_file(host, round(time.monotonic() - begin, 3))
                    missing.remove(host)
            if missing:
                time.sleep(0.2)
        return {**seen, **{host: {"seconds": None, "uid": None, "right": False} for host in missing}}

    def _read_file(self, host: str, waited: float) -> dict[str, Any]:
        try:
            file = self._file(host, "host")
            right = _read_content(file) == self._content(host)
            return {"seconds": waited, "uid": file.stat().st_uid, "right": right}
        except OSError:
            # This user may not read it.
            return {"seconds": waited, "uid": None, "right": False}

    def _lock_file(self, kind: str) -> Path:
        return self._directory / f"lock-{kind}"

    def _hold_locks(self, seconds: int) -> list[str]:
        """Hold both kinds of locks in a process of its own until their files are gone. Return those that it got."""
        reading, writing = os.pipe()
        if not os.fork():
            # Whatever happens, the child must not return into the code of its parent.
            try:
                # Locks of fcntl belong to a process, and are not inherited.
                files = {kind: os.open(self._lock_file(kind), os.O_RDWR | os.O_CREAT, 0o644) for kind in LOCKS}
                kinds = [kind for kind, file in files.items() if _try_lock(LOCKS[kind], file) == "free"]
                os.write(writing, " ".join(kinds).encode())
                _detach(keep=set(files.values()))
                end = time.monotonic() + seconds
                while time.monotonic() < end and self._lock_file("flock").exists():
                    time.sleep(0.1)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            return pipe.read().decode().split()

    def _lock_states(self) -> dict[str, str]:
        """Try to get each kind of lock: "held" if another process has it, as it should, "free" or "unsupported"."""
        states = {}
        for kind, call in LOCKS.items():
            # If this machine does not see the file, nothing is known of the lock, and storage.canary reports that.
            with suppress(OSError):
                file = os.open(self._lock_file(kind), os.O_RDWR)
                states[kind] = _try_lock(call, file)
                os.close(file)
        return states


def _read_content(file: Path) -> bytes:
    # A pipe of this name must not hold up a reader.
    with io.FileIO(os.open(file, os.O_RDONLY | os.O_NONBLOCK)) as opened:
        return opened.read(MAX_CONTENT_BYTES) or b""


def _try_lock(call: Callable[[int, int], Any], file: int) -> str:
    """Try once to get a lock. A server without a lock manager may never answer: an alarm ends the call."""
    signal.signal(signal.SIGALRM, _interrupt)
    signal.alarm(LOCK_SECONDS)
    try:
        call(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return "held" if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else "unsupported"
    finally:
        signal.alarm(0)
    return "free"


def _interrupt(_number: int, _frame: object) -> None:
    raise TimeoutError(errno.ETIMEDOUT, "no answer from the lock manager")


def _detach(keep: set[int]) -> None:
    """Let this process outlive its parent: close all other descriptors, as Ansible and SSH wait for their pipes."""
    os.setsid()
    # /proc has the open ones, but the process of the nodes' user cannot reach it: its root is the shared root.
    for descriptor in range(MAX_DESCRIPTORS):
        if descriptor not in keep:
            with suppress(OSError):
                os.close(descriptor)
