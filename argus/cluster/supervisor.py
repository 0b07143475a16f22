# SPDX-License-Identifier: Apache-2.0
"""The supervisor of a node without a container keeps Ray running, as Docker and its init process do for a container."""

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

from ..common.node_process import LOCK_FILE, LOG_FILE, ORDER_FILE, STATE_FILE, node_pids, read_json
from ..io import writing

# If this file exists, Ray is not restarted after its end: the node leaves the cluster.
NO_RESTART_FILE = "last"
OLD_LOG_FILE = f"{LOG_FILE}.1"
# The size of each of the two log files, as with containers.
MAX_LOG_BYTES = 50 << 20
POLL_INTERVAL_SECONDS = 30.0
# As in Docker, the pause doubles, and is reset after Ray has run for a while.
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS, LONG_RUN_SECONDS = 0.1, 60.0, 10.0
# The time for Ray to end by itself, and for its remaining processes to end after SIGKILL.
STOP_TIMEOUT_SECONDS, KILL_TIMEOUT_SECONDS = 5.0, 10.0
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# The exit code for a Ray that cannot be started, as of a shell.
NOT_STARTED_CODE = 127


def reap_children() -> Iterator[tuple[int, int]]:
    """The PIDs of the children that have ended, and their exit codes in the manner of a shell: 128 + N for signal N."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def kill_all(directory: Path, parent: int = 0) -> set[int]:
    """Kill the processes of a node, and the children of `parent`; return the PIDs that are left after a while.

    parent: 0, or the PID of this process, which then also reaps its children.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_SECONDS
    while (pids := node_pids(directory, parent) - {os.getpid()}) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        if parent:
            list(reap_children())
    return pids


def next_pause(pause: float, run_seconds: float) -> float:
    """The seconds to wait before Ray is started again. pause: the previous wait. run_seconds: how long Ray has run."""
    doubled = min(max(pause * 2, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
    return MIN_PAUSE_SECONDS if run_seconds >= LONG_RUN_SECONDS else doubled


def rotate_log(directory: Path, limit: int = MAX_LOG_BYTES) -> None:
    """Copy a log of at least `limit` bytes to its second file, and empty the first, to which Ray still writes."""
    log = directory / LOG_FILE
    if log.is_file() and log.stat().st_size >= limit:
        shutil.copyfile(log, directory / OLD_LOG_FILE)
        os.truncate(log, 0)


class Supervisor:
    """Starts Ray, waits for its end, kills what it has left, and starts it again."""

    def __init__(self, directory: Path, order: dict[str, Any]) -> None:
        """directory: of the node. order: the content of its ORDER_FILE: command, environment and working directory."""
        self.directory, self.order = directory, order
        self.state: dict[str, Any] = {"started_at": None, "restarts": 0, "exit_code": None}
        self.is_stopping = False

    def run(self) -> None:
        """Keep Ray running until a signal ends this process, or NO_RESTART_FILE exists when Ray ends."""
        pause = 0.0
        while True:
            start_time = time.monotonic()
            code = self.run_once()
            # This ends trainers, and stewards on a head, as the end of a container would. As the subreaper, this
            # process is the parent of all orphans.
            kill_all(self.directory, os.getpid())
            if self.is_stopping or (self.directory / NO_RESTART_FILE).exists():
                return
            pause = next_pause(pause, time.monotonic() - start_time)
            print_note(f"Ray ended with exit code {code}; it is started again in {pause:g} s")
            self.write_state(restarts=self.state["restarts"] + 1, exit_code=code)
            if self.wait(pause):
                return

    def run_once(self) -> int:
        """Start Ray, which inherits the output of this process, wait for its end, and return its exit code."""
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
            return NOT_STARTED_CODE
        self.write_state(started_at=time.time())
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
            rotate_log(self.directory)

    def wait(self, seconds: float) -> bool:
        """Wait for a signal, also that of a child that ends; return whether this process has been told to end."""
        received = signal.sigtimedwait(SIGNALS, seconds)
        self.is_stopping |= received is not None and received.si_signo != signal.SIGCHLD
        return self.is_stopping

    def write_state(self, **changes: Any) -> None:
        self.state.update(changes)
        writing.write_text(self.directory / STATE_FILE, json.dumps(self.state), durable=False)


def print_note(text: str) -> None:
    print(f"[argus.verl {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}] {text}", flush=True)


def child_setup(supervisor: int) -> Callable[[], None]:
    """The function that prepares Ray's process before exec, so that it ends with its supervisor in any case."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(NOT_STARTED_CODE)

    return prepare


def supervise(directory: Path) -> bool:
    """Become the supervisor of a node, until the node is ended. Returns False at once if the node has another one."""
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # A lock of fcntl(2), as F_GETLK tells who holds it. To close any descriptor of the file would drop the lock.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # The same umask as in a container: that of the user may be narrower, and jobs share their files with the group.
    os.umask(0o022)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    order = read_json(directory / ORDER_FILE)
    # systemd-tmpfiles, which cleans /tmp, skips a locked directory and everything below it.
    sessions = os.open(order["working_directory"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(sessions, fcntl.LOCK_SH | fcntl.LOCK_NB)
    Supervisor(directory, order).run()
    return True
