# SPDX-License-Identifier: Apache-2.0
"""The supervisor of a node without a container: it keeps Ray running, as the engine and its init do for a container."""

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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..common.node_process import LOCK, LOG, ORDER, STATE, processes, read_json
from ..io import writing

# If this file exists, Ray is not restarted after its end: the node leaves the cluster.
NO_RESTART_FILE = "last"
OLD_LOG = f"{LOG}.1"
# The size of each of the two log files, as with containers.
MAX_LOG_BYTES = 50 << 20
POLL_INTERVAL_SECONDS = 30.0
# As in Docker, the pause doubles, and is reset after Ray has run for a while.
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS, LONG_RUN_SECONDS = 0.1, 60.0, 10.0
# The time for Ray to end by itself, and for its remaining processes to end after SIGKILL.
STOP_TIMEOUT_SECONDS, SWEEP_TIMEOUT_SECONDS = 5.0, 10.0
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
NOT_STARTED = 127


def reap_children() -> Iterator[tuple[int, int]]:
    """The children that have ended, and their exit codes as those of a shell."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def kill_all(directory: Path, parent: int = 0) -> set[int]:
    """Kill the processes of a node and the children of a process; return the PIDs that are left after a while."""
    deadline = time.monotonic() + SWEEP_TIMEOUT_SECONDS
    while (left := processes(directory, parent) - {os.getpid()}) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        if parent:
            list(reap_children())
    return left


def next_pause(pause: float, lived: float) -> float:
    """The seconds to wait before Ray is restarted, after it has run for `lived` seconds."""
    longer = min(max(pause * 2, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
    return MIN_PAUSE_SECONDS if lived >= LONG_RUN_SECONDS else longer


def rotate(directory: Path, limit: int = MAX_LOG_BYTES) -> None:
    """Copy a log that has become too large to its second file; Ray keeps the descriptor of the first."""
    log = directory / LOG
    if log.is_file() and log.stat().st_size >= limit:
        shutil.copyfile(log, directory / OLD_LOG)
        os.truncate(log, 0)


class Supervisor:
    """Starts Ray, waits for its end, ends what it left, and starts it again."""

    def __init__(self, directory: Path, order: dict[str, Any]) -> None:
        self.directory, self.order = directory, order
        self.state: dict[str, Any] = {"started_at": None, "restarts": 0, "exit_code": None}
        self.is_stopping = False

    def run(self) -> None:
        pause = 0.0
        while True:
            began = time.monotonic()
            code = self.run_once()
            # This ends trainers, and stewards on a head, as the end of a container would. As the subreaper, this
            # process is the parent of all orphans.
            kill_all(self.directory, os.getpid())
            if self.is_stopping or (self.directory / NO_RESTART_FILE).exists():
                return
            pause = next_pause(pause, time.monotonic() - began)
            print_note(f"Ray ended with exit code {code}; it is started again in {pause:g} s")
            self.write(restarts=self.state["restarts"] + 1, exit_code=code)
            if self.wait(pause):
                return

    def run_once(self) -> int:
        """Start Ray, with the output of this process, and return its exit code."""
        try:
            ray = subprocess.Popen(
                self.order["command"],
                env=self.order["environment"],
                cwd=self.order["working_directory"],
                stdin=subprocess.DEVNULL,
                preexec_fn=child_setup(os.getpid()),
            )
        except OSError as error:
            print_note(f"Ray cannot be started: {error}")
            return NOT_STARTED
        self.write(started_at=time.time())
        deadline = None
        while True:
            for pid, code in reap_children():
                if pid == ray.pid:
                    return code
            if deadline is not None and time.monotonic() >= deadline:
                os.kill(ray.pid, signal.SIGKILL)
            if self.wait(POLL_INTERVAL_SECONDS if deadline is None else 0.1) and deadline is None:
                os.kill(ray.pid, signal.SIGTERM)
                deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
            rotate(self.directory)

    def wait(self, seconds: float) -> bool:
        """Wait for a signal; whether this process has been told to end. The end of a child ends the wait."""
        received = signal.sigtimedwait(SIGNALS, seconds)
        self.is_stopping |= received is not None and received.si_signo != signal.SIGCHLD
        return self.is_stopping

    def write(self, **changes: Any) -> None:
        self.state.update(changes)
        writing.write_text(self.directory / STATE, json.dumps(self.state), durable=False)


def print_note(text: str) -> None:
    print(f"[argus.verl {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}] {text}", flush=True)


def child_setup(supervisor: int) -> Callable[[], None]:
    """Prepares Ray's process before exec: it ends with its supervisor, however that ends."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(NOT_STARTED)

    return prepare


def supervise(directory: Path) -> bool:
    """Keep the node of a directory running until it is ended; False if another supervisor does so."""
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # The lock of a process, which F_GETLK names: closing another descriptor of the file would drop it.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # The umask of a container: a user's may be narrower, and jobs share their files with the group.
    os.umask(0o022)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Ray needs some for every worker and every connection.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    order = read_json(directory / ORDER)
    # systemd-tmpfiles, which cleans /tmp, skips a locked directory and everything below it.
    kept = os.open(order["working_directory"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(kept, fcntl.LOCK_SH | fcntl.LOCK_NB)
    Supervisor(directory, order).run()
    return True
