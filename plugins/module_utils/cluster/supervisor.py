# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supervisor of a node without a container: it keeps Ray running, as the engine and its init do for a container.

A program of one file, `supervisor.py DIRECTORY`, that needs only the standard library of Python 3.9: the module
node_process copies it into the node's directory, and starts it there with the node's Python. What runs is known from
the lock alone, which the kernel drops with the process; no file has to be believed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

# In the environment of every process of a node, with the node's directory as its value.
MARK = "ARGUS_VERL_NODE_DIRECTORY"
ORDER, STATE, LOCK, LOG = "node.json", "state.json", "lock", "node.log"
# With this file, Ray that ends is not started again: the node leaves the cluster.
LAST = "last"
# Two files of this size, as of the containers.
LOG_BYTES = 50 << 20
LOOK_SECONDS = 30.0
# As Docker does: the pause doubles, and starts again after Ray has run for a while.
FIRST_PAUSE, LONGEST_PAUSE, LONG_RUN = 0.1, 60.0, 10.0
# How long Ray may take to end by itself, and what it left to end after SIGKILL.
STOP_SECONDS, SWEEP_SECONDS = 5.0, 10.0
# A look at the lock takes it for a moment.
LOCK_SECONDS = 2.0
LOCKED = 75  # EX_TEMPFAIL: another supervisor has the node
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
NOT_STARTED = 127
PROC = Path("/proc")


def take_lock(directory: Path, seconds: float = 0.0) -> int | None:
    """The descriptor of a node's lock, which is held until it is closed; None if a supervisor has it."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.02)


def marked(mark: str, proc: Path = PROC) -> set[int]:
    """The processes of a node: each inherits the mark. Those of other users cannot be read, and are never touched."""
    wanted, found = f"{MARK}={mark}".encode(), set()
    for entry in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return found


def parents(proc: Path = PROC) -> dict[int, int]:
    found = {}
    for entry in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may contain anything.
            found[int(entry.name)] = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return found


def descendants(pid: int, parent_of: Mapping[int, int]) -> set[int]:
    """The processes below a process, which as a subreaper is the parent of all that lost theirs."""
    found: set[int] = set()
    level = {pid}
    while level:
        level = {child for child, parent in parent_of.items() if parent in level} - found
        found |= level
    return found


def ancestors(pid: int, parent_of: Mapping[int, int]) -> set[int]:
    """A process and those above it."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = parent_of.get(pid, 0)
    return found


def ended_children() -> Iterator[tuple[int, int]]:
    """The children that have ended, and how."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, status


def end_all(mark: str, spare: Iterable[int] = (), seconds: float = SWEEP_SECONDS) -> set[int]:
    """Kill the processes of a node and those below this one; what is left after a while.

    mark: empty for those below alone.
    spare: what stays although it has the mark: who looks for it may have inherited it.
    """
    deadline = time.monotonic() + seconds
    while True:
        parent_of = parents()
        left = (marked(mark) if mark else set()) | descendants(os.getpid(), parent_of)
        left -= {*spare, *ancestors(os.getpid(), parent_of)}
        if not left or time.monotonic() >= deadline:
            return left
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        list(ended_children())


def next_pause(pause: float, lived: float) -> float:
    """How long to wait before Ray is started again, after it has lived for so many seconds."""
    return FIRST_PAUSE if lived >= LONG_RUN else min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)


def rotate(log: Path, limit: int = LOG_BYTES) -> bool:
    """Move a log that has become too large to its second file; Ray keeps the descriptor of the first."""
    if not log.exists() or log.stat().st_size < limit:
        return False
    temporary = log.with_name(f".{log.name}.1")
    with log.open("rb") as source, open(temporary, "wb", opener=private) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    temporary.replace(log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)
    return True


def private(path: str, flags: int) -> int:
    """Open a file that only this user can read."""
    return os.open(path, flags, 0o600)


def open_files() -> None:
    """Allow as many open files as this user may have: Ray needs some for every worker and every connection."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Supervisor:
    """Starts Ray, waits for its end, ends what it left, and starts it again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.node: dict[str, Any] = json.loads((directory / ORDER).read_text(encoding="utf-8"))
        named = {name: self.node[name] for name in ("specification", "settings", "derived")}
        self.state: dict[str, Any] = {"pid": os.getpid(), **named, "restarts": 0, "exit_code": None}
        self.stopping = False

    def run(self) -> int:
        pause = 0.0
        while True:
            began = time.monotonic()
            code = self.run_once()
            # Trainers, and stewards on a head: what the end of a container would end. Who tells this process to end may
            # have the mark itself, and ends the rest.
            end_all("" if self.stopping else self.node["environment"][MARK])
            if self.stopping or (self.directory / LAST).exists():
                return 0
            pause = next_pause(pause, time.monotonic() - began)
            self.note(f"Ray ended with exit code {code}; it is started again in {pause:g} s")
            self.write(ray_pid=None, restarts=self.state["restarts"] + 1, exit_code=code)
            if self.wait(pause):
                return 0

    def run_once(self) -> int:
        """Start Ray, and return its exit code."""
        rotate(self.directory / LOG)
        log = os.open(self.directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            ray = subprocess.Popen(
                self.node["command"],
                env=self.node["environment"],
                cwd=self.node["working_directory"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=in_child(os.getpid()),
            )
        except OSError as error:
            self.note(f"Ray cannot be started: {error}")
            return NOT_STARTED
        finally:
            os.close(log)
        self.write(ray_pid=ray.pid, started_at=time.time())
        return self.until_ended(ray.pid)

    def until_ended(self, ray: int) -> int:
        """Wait for Ray, and reap what lost its parent; end Ray if this process is told to end."""
        deadline = None
        while True:
            for pid, status in ended_children():
                if pid == ray:
                    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            if deadline is not None and time.monotonic() >= deadline:
                os.kill(ray, signal.SIGKILL)
            if self.wait(LOOK_SECONDS if deadline is None else 0.1) and deadline is None:
                os.kill(ray, signal.SIGTERM)
                deadline = time.monotonic() + STOP_SECONDS
            rotate(self.directory / LOG)

    def wait(self, seconds: float) -> bool:
        """Wait for a signal; whether this process has been told to end. The end of a child ends the wait."""
        received = signal.sigtimedwait(SIGNALS, seconds)
        if received and received.si_signo != signal.SIGCHLD:
            self.stopping = True
        return self.stopping

    def write(self, **changes: Any) -> None:
        self.state.update(changes)
        temporary = self.directory / f".{STATE}"
        with open(temporary, "w", encoding="utf-8", opener=private) as file:
            json.dump(self.state, file)
        temporary.replace(self.directory / STATE)

    def note(self, text: str) -> None:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with open(self.directory / LOG, "a", encoding="utf-8") as log:
            log.write(f"[argus.verl {moment}] {text}\n")


def in_child(supervisor: int) -> Any:
    """What Ray's process does before it is Ray: it ends with its supervisor, however that ends."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(NOT_STARTED)

    return prepare


def main(directory: Path) -> int:
    lock = take_lock(directory, LOCK_SECONDS)
    if lock is None:
        return LOCKED
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # As in a container: that of a user may be narrower, and jobs share their files with the group.
    os.umask(0o022)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    open_files()
    supervisor = Supervisor(directory)
    # What cleans /tmp leaves out a directory that is locked, and all below it (systemd-tmpfiles).
    kept = os.open(supervisor.node["working_directory"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(kept, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return supervisor.run()


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
