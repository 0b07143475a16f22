# SPDX-License-Identifier: Apache-2.0
"""A node that is a process of Ansible's user: its directory, its processes and its state.

Jobs have the same user: what files tell is bounded, and no proof. Whether a supervisor lives is known from its lock
alone, which the kernel drops with the process. Runs with the standard library of Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

# In the environment of every process of a node, with the node's directory as its value.
MARK = "ARGUS_VERL_NODE_DIRECTORY"
# The directory of the nodes in a cluster's state directory.
NODES = "nodes"
ORDER, STATE, LOCK, LOG = "node.json", "state.json", "lock", "node.log"
MAX_JSON_BYTES = 1 << 20
RUNNING, STOPPED, ORPHANED = "running", "stopped", "orphaned"
# struct flock of fcntl(2): type, whence, start, length, process.
FLOCK = "hhqqi4x"
PROC = Path("/proc")


@dataclass(frozen=True)
class NodeProcess:
    """The state of a node on its machine.

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


def look(directory: Path) -> NodeProcess:
    pid = supervisor(directory)
    if pid is not None:
        state = RUNNING
    elif processes(directory):
        state = ORPHANED
    elif directory.is_dir():
        state = STOPPED
    else:
        return NodeProcess()
    return NodeProcess(state, pid or 0, **read_record(directory))


def supervisor(directory: Path) -> int | None:
    """The PID that holds a node's lock; not positive if it is on another host or container, None if unlocked."""
    try:
        with open_nonblocking(directory / LOCK) as lock:
            query = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _whence, _start, _length, pid = struct.unpack(FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, query))
    except FileNotFoundError:
        return None
    return None if kind == fcntl.F_UNLCK else int(pid)


def read_record(directory: Path) -> dict[str, Any]:
    """The order that a supervisor was started with, and the state that it has written."""
    try:
        order, state = (read_json(directory / name) for name in (ORDER, STATE))
        code, started = state["exit_code"], state["started_at"]
        return {
            **{name: str(order[name]) for name in ("specification", "settings", "derived")},
            # datetime.UTC came with Python 3.11.
            "started_at": started and datetime.fromtimestamp(started, timezone.utc).isoformat(),  # noqa: UP017
            "restarts": int(state["restarts"]),
            "exit_code": None if code is None else int(code),
        }
    except (OSError, ValueError, TypeError, LookupError, RecursionError, OverflowError):
        return {}


def read_json(file: Path) -> Any:
    with open_nonblocking(file) as source:
        return json.loads(source.read(MAX_JSON_BYTES))


def open_nonblocking(file: Path) -> IO[bytes]:
    """Open a file for reading, without waiting if a job has put a FIFO there."""
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def processes(directory: Path, parent: int = 0, proc: Path = PROC) -> set[int]:
    """The processes of a node: each inherits the mark. Those of other users cannot be read, and are never touched.

    parent: its children are included, because they may have dropped the mark.
    """
    mark, pids = f"{MARK}={directory}".encode(), set()
    for entry in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, LookupError):
            # The name, in parentheses, may contain anything.
            is_child = parent and int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1]) == parent
            if is_child or mark in (entry / "environ").read_bytes().split(b"\0"):
                pids.add(int(entry.name))
    return pids


def neighbours(directory: Path) -> list[str]:
    """Other nodes of the cluster on this machine."""
    with contextlib.suppress(OSError):
        return sorted({*os.listdir(directory.parent)} - {directory.name})
    return []
