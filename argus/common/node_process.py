# SPDX-License-Identifier: Apache-2.0
"""Reads the state of a node that runs as a process of Ansible's user: its supervisor, its files and its processes.

Jobs run as the same user, so files are read with limits and prove nothing. Whether a supervisor lives is known from its
lock alone, which the kernel drops with the process. Needs nothing but the standard library of Python 3.9 and newer.
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

# The variable that marks every process of a node; its value is the node's directory.
MARK_VARIABLE = "ARGUS_VERL_NODE_DIRECTORY"
# The directory in a cluster's state directory that has the directories of its nodes.
NODES_DIR = "nodes"
# The files of a node: what its supervisor was started with, what the supervisor has recorded, its lock, its output.
ORDER_FILE, STATE_FILE, LOCK_FILE, LOG_FILE = "node.json", "state.json", "lock", "node.log"
MAX_JSON_BYTES = 1 << 20
# The states of a node; ORPHANED: its supervisor was killed, and processes of the node are left.
RUNNING, STOPPED, ORPHANED = "running", "stopped", "orphaned"
# struct flock of fcntl(2): type, whence, start, length, process.
FLOCK_FORMAT = "hhqqi4x"
PROC = Path("/proc")


@dataclass(frozen=True)
class NodeProcess:
    # RUNNING, STOPPED or ORPHANED; empty if the machine has no such node.
    state: str = ""
    pid: int = 0
    # When Ray was last started, in the format of ISO 8601.
    started_at: str | None = None
    restarts: int = 0
    exit_code: int | None = None
    # The settings with which the supervisor was started, see NodeRequest in verbs/node.py.
    specification: str = ""
    settings: str = ""
    derived: str = ""


def read_node_process(directory: Path) -> NodeProcess:
    pid = supervisor_pid(directory)
    if pid is not None:
        state = RUNNING
    elif node_pids(directory):
        state = ORPHANED
    elif directory.is_dir():
        state = STOPPED
    else:
        return NodeProcess()
    return NodeProcess(state, pid or 0, **read_record(directory))


def supervisor_pid(directory: Path) -> int | None:
    """The PID that holds a node's lock; 0 or less if it is of another host or container; None without a supervisor."""
    try:
        with open_nonblocking(directory / LOCK_FILE) as lock:
            query = struct.pack(FLOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _whence, _start, _length, pid = struct.unpack(FLOCK_FORMAT, fcntl.fcntl(lock, fcntl.F_GETLK, query))
    except FileNotFoundError:
        return None
    return None if kind == fcntl.F_UNLCK else int(pid)


def read_record(directory: Path) -> dict[str, Any]:
    """The fields of NodeProcess from the files of a node; none if a file is missing or malformed."""
    try:
        order, state = (read_json(directory / name) for name in (ORDER_FILE, STATE_FILE))
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


def node_pids(directory: Path, parent: int = 0, proc: Path = PROC) -> set[int]:
    """The PIDs of a node's processes, which inherit its mark. Processes of other users cannot be read, nor killed.

    parent: a PID whose children are included, as they may have dropped the mark; 0 for none.
    """
    mark, pids = f"{MARK_VARIABLE}={directory}".encode(), set()
    for entry in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, LookupError):
            # The name of the process, in parentheses, may contain anything.
            is_child = parent and int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1]) == parent
            if is_child or mark in (entry / "environ").read_bytes().split(b"\0"):
                pids.add(int(entry.name))
    return pids


def neighbours(directory: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted({*os.listdir(directory.parent)} - {directory.name})
    return []
