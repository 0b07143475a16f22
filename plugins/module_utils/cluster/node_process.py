# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is a supervised process of Ansible's user: its state, its start and its end on its machine.

Runs on machines with Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from . import supervisor
from .supervisor import (
    LAST,
    LOCK,
    LOG,
    MARK,
    ORDER,
    PROC,
    STATE,
    ancestors,
    end_all,
    marked,
    parents,
    private,
    take_lock,
)

PROGRAM, PROGRAM_LOG, ENVIRONMENT = "supervisor.py", "supervisor.log", "environment.sh"
NODES = "nodes"
STATE_BYTES = 64 << 10
START_SECONDS, STOP_SECONDS = 15.0, 30.0
# The programs of a Ray node.
RAY_PROGRAMS = ("raylet", "gcs_server")
RUNNING, STOPPED, ORPHANED = "running", "stopped", "orphaned"


# A node has from a step of Slurm its GPUs of the host, and what lines of shell before the step have set. It has not
# Slurm's own variables, which change what libraries do, and not those of shells, of `module` and of the user.
STEP = "SLURM_JOB_ID"
NOT_OF_NODES = re.compile(
    r"""(SLURM|SRUN|SBATCH|PMI|BASH|LMOD|_*MODULE|ANSIBLE|ARGUS)\w*(%%|\(\))?|_LM\w*|LOADEDMODULES|_|SHELL|SHLVL|(OLD)?PWD
    |ENVIRONMENT|TERM\w*|HOSTNAME|HOME|USER|LOGNAME|LC_\w+|PATH""",
    re.VERBOSE,
)


class ProcessError(Exception):
    """A node cannot be started or ended; the message says what, where, and what to do."""


@dataclass(frozen=True)
class FoundProcess:
    """A node as it was found on its machine.

    state: of its supervisor; "orphaned" if that was killed and processes of the node are left. Empty if there is none.
    started_at: when Ray was last started, in the format of ISO 8601.
    exit_code: of Ray when it last ended.
    specification, settings, derived: what the supervisor was started with.
    """

    state: str = ""
    pid: int = 0
    started_at: str | None = None
    restarts: int = 0
    exit_code: int | None = None
    specification: str = ""
    settings: str = ""
    derived: str = ""


# What the file of the supervisor's state has; a job may have written it.
STATE_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("pid", "restarts", "exit_code"), (int,)),
    **dict.fromkeys(("specification", "settings", "derived"), (str,)),
    "started_at": (int, float),
}


def read_state(directory: Path) -> dict[str, Any]:
    """What the supervisor has written; it is no proof that it lives."""
    try:
        with open_own(directory / STATE) as file:
            found = json.loads(file.read(STATE_BYTES))
        known = {name: found[name] for name, types in STATE_TYPES.items() if isinstance(found.get(name), types)}
        state = {name: value for name, value in known.items() if not isinstance(value, bool)}
        return {**state, "started_at": moment(state["started_at"])} if "started_at" in state else state
    except (OSError, ValueError, AttributeError, RecursionError, OverflowError):
        return {}


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()  # noqa: UP017 - datetime.UTC came with Python 3.11


class NodeProcess:
    """The node of one directory, which only its user can enter."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).expanduser()

    def runs(self) -> bool:
        """Whether a supervisor lives: nothing else holds the lock."""
        if not (self.directory / LOCK).exists():
            return False
        lock = take_lock(self.directory)
        if lock is None:
            return True
        os.close(lock)
        return False

    def look(self) -> FoundProcess:
        if self.runs():
            how = RUNNING
        elif self.left():
            how = ORPHANED
        elif self.directory.is_dir():
            how = STOPPED
        else:
            return FoundProcess()
        return FoundProcess(how, **read_state(self.directory))

    def left(self) -> set[int]:
        """The processes of the node, without those that look for it: the module, and what it runs in."""
        return marked(str(self.directory)) - self.spared()

    @staticmethod
    def spared() -> set[int]:
        session, parent_of = os.getsid(0), parents()
        own = ancestors(os.getpid(), parent_of)
        for pid in parent_of:
            with contextlib.suppress(OSError):
                own |= {pid} if os.getsid(pid) == session else set()
        return own

    def start(self, order: Mapping[str, Any]) -> FoundProcess:
        """Start the node; what runs of it, or was left of it, is ended first. order: as the supervisor reads it."""
        self.stop()
        sessions = Path(order["working_directory"])
        own_directory(self.directory)
        own_directory(sessions)
        if not self.neighbours():
            # The sessions of a Ray that has ended: nothing else ever removes them.
            shutil.rmtree(sessions / "ray", ignore_errors=True)
        for entry in os.scandir(self.directory):
            # A FIFO or a link of a job would be opened for writing.
            if entry.name in (STATE, LAST) or not (entry.is_file(follow_symlinks=False) or entry.is_dir()):
                os.unlink(entry.path)
        environment = with_step(order["environment"], os.environ)
        self._write(ORDER, json.dumps({**order, "environment": environment}))
        self._write(PROGRAM, inspect.getsource(supervisor))
        self._write(ENVIRONMENT, exports(environment))
        self._launch(order["python"])
        return self._started(order["specification"])

    def _launch(self, python: str) -> None:
        argv = [python, "-I", str(self.directory / PROGRAM), str(self.directory)]
        with open(self.directory / PROGRAM_LOG, "wb", opener=private) as log:
            try:
                # A session of its own: it stays when the connection ends. Without the mark, or it would end itself.
                subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessError(f"ray_node_python {python} cannot be run: {error.strerror}; correct it") from error

    def _started(self, specification: str) -> FoundProcess:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = self.look()
            if found.state == RUNNING and found.specification == specification and found.started_at:
                return found
            if found.restarts:
                break
            time.sleep(0.05)
        raise ProcessError(f"Ray was not started: {self.last_words() or 'no message'} ({self.directory / LOG})")

    def last_words(self) -> str:
        ends = (" / ".join(tail(self.directory / name, 3)) for name in (PROGRAM_LOG, LOG))
        return next(filter(None, ends), "")

    def stop(self) -> bool:
        """End the node; whether there was anything to end."""
        ended = self.directory.is_dir() and self._stop_supervisor()
        left = self.left()
        if remaining := end_all(str(self.directory), self.spared()) if left else set():
            numbers = ", ".join(map(str, sorted(remaining)))
            raise ProcessError(f"processes of the node do not end, even with SIGKILL: {numbers}; see ps and dmesg")
        return ended or bool(left)

    def _stop_supervisor(self) -> bool:
        ended = False
        began = time.monotonic()
        while self.runs():
            ended, lasted = True, time.monotonic() - began
            pid = read_state(self.directory).get("pid", 0)
            if pid and is_supervisor(pid, self.directory):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if lasted <= STOP_SECONDS / 2 else signal.SIGKILL)
            if lasted > STOP_SECONDS:
                raise ProcessError(f"the supervisor of {self.directory} does not end; end it by hand (pid {pid})")
            time.sleep(0.1)
        return ended

    def remove(self, working_directory: str) -> bool:
        """End the node and remove its files; whether there was anything."""
        ended = self.stop()
        there = self.directory.is_dir()
        if there:
            shutil.rmtree(self.directory)
        with contextlib.suppress(OSError):
            self.directory.parent.rmdir()
        sessions = Path(working_directory) if working_directory else None
        if sessions and not self.neighbours() and is_own(sessions):
            # The last two nodes of a host may be removed at once.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(sessions)
            there = True
        return ended or there

    def neighbours(self) -> list[str]:
        """Other nodes of the cluster on this machine."""
        try:
            names = sorted(os.listdir(self.directory.parent))
        except OSError:
            return []
        return [name for name in names if name != self.directory.name]

    def _write(self, name: str, text: str) -> None:
        temporary = self.directory / f".{name}"
        with open(temporary, "w", encoding="utf-8", opener=private) as file:
            file.write(text)
        temporary.replace(self.directory / name)


def with_step(own: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node; in a step of Slurm with what the step has."""
    if STEP not in environ:
        return dict(own)
    # The directory of Ray's own Python stays the first.
    first, *rest = own.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(dict.fromkeys([first, *environ.get("PATH", "").split(os.pathsep), *rest]))
    step = {name: text for name, text in environ.items() if not NOT_OF_NODES.fullmatch(name)}
    if not Path(step.get("TMPDIR", "/")).is_dir():
        # It may be one of the host from which the job of Slurm was submitted.
        del step["TMPDIR"]
    return {**step, **own, "PATH": path}


def exports(environment: Mapping[str, str]) -> str:
    """The environment of a node for people's shells."""
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()) if name != MARK)
    return "# The environment of this node: `. environment.sh`, and then `ray status`.\n" + "".join(lines)


def is_own(directory: Path) -> bool:
    """Whether it is a directory of this user, and no link."""
    try:
        there = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid()


def own_directory(directory: Path) -> None:
    """Create a directory that only this user can enter."""
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not is_own(directory):
        raise ProcessError(
            f"{directory} belongs to another user of this host, or is a link; remove it, or set another cluster_name"
        )
    directory.chmod(0o700)


def is_supervisor(pid: int, directory: Path, proc: Path = PROC) -> bool:
    """Whether a process is the supervisor of a node: the number that it wrote may be that of another one now."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().split(b"\0")[-2:-1] == [os.fsencode(directory)]
    except OSError:
        return False


def open_own(file: Path) -> IO[bytes]:
    """Open a file of the node for reading. Its jobs have the same user: a FIFO in its place is not waited for."""
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def tail(file: Path, lines: int, size: int = 16 << 10) -> list[str]:
    try:
        with open_own(file) as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - size))
            return source.read(size).decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def other_rays(own: Iterable[int], proc: Path = PROC) -> list[str]:
    """The processes of Ray nodes that are not ours: of another cluster, of another user, or started by hand."""
    ours, found = set(own), {}
    for entry in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = os.fsdecode((entry / "cmdline").read_bytes().split(b"\0")[0]).rpartition("/")[2]
            if program in RAY_PROGRAMS and int(entry.name) not in ours:
                found[int(entry.name)] = f"{program} {entry.name} of uid {entry.stat().st_uid}"
    return [found[pid] for pid in sorted(found)]
