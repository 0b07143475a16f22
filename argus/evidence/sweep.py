# SPDX-License-Identifier: Apache-2.0
"""Ends what a job left on the nodes of a cluster after its end: processes, and the shared memory of torch."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..archive.archive import Archive
from ..ray.tasks import Connection
from .evidence import NODES_TIMEOUT_SECONDS, head_id, processes_of_job
from .node import SHM, command_output, job_processes

# The time for Ray's workers to end after their job, and for processes to end after SIGTERM.
WORKER_EXIT_TIMEOUT_SECONDS = 8.0
TERM_TIMEOUT_SECONDS = 3.0
# torch names shared memory after its process (aten/src/ATen/MapAllocator.cpp, NewProcessWideShmHandle).
TORCH_SHM = re.compile(r"torch_(\d+)_")


def sweep_job(archive: Archive, connection: Connection) -> dict[str, Any]:
    """End the processes that an ended job left on any node.

    Returns ``{"nodes": {name: the result of sweep_node}, "problems": {name: why a node did not answer}}``.
    """
    if connection.problem:
        return {"nodes": {}, "problems": {"Ray": connection.problem}}
    nodes = connection.nodes()
    head = head_id(nodes)
    processes = processes_of_job(connection, head, archive)
    started = {
        entry["NodeName"]: connection.start_on(
            entry["NodeID"], sweep_node, archive.submission_id, sorted(processes.pids.get(entry["NodeID"], ()))
        )
        for entry in nodes
        if entry["NodeID"] != head
    }
    values, problems = connection.results(started, NODES_TIMEOUT_SECONDS)
    return {"nodes": values, "problems": problems}


def sweep_node(
    submission_id: str, pids: Iterable[int], patience: float = WORKER_EXIT_TIMEOUT_SECONDS
) -> dict[str, Any]:
    """End the processes that a job left on this node; returns what was ended and what remains.

    pids: the process ids of the job on this node as Ray knew them, after which shared memory is named.
    patience: the seconds in which the processes may end by themselves.
    """
    wait_until_gone(submission_id, patience)
    killed = {process.pid: process.command for process in job_processes(submission_id)}
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for process in job_processes(submission_id):
            # The process may have ended meanwhile.
            with contextlib.suppress(OSError):
                os.kill(process.pid, signum)
        wait_until_gone(submission_id, TERM_TIMEOUT_SECONDS)
    job_pids = {int(pid) for pid in pids} | set(killed)
    return {
        "killed": killed,
        "shm_removed": remove_shared_memory(job_pids),
        "left": [asdict(process) for process in job_processes(submission_id)],
        "gpu_processes": gpu_processes(job_pids),
    }


def wait_until_gone(submission_id: str, seconds: float) -> None:
    """Wait until the job has no process on this node, for at most that time."""
    deadline = time.monotonic() + seconds
    while job_processes(submission_id) and time.monotonic() < deadline:
        time.sleep(0.1)


def remove_shared_memory(pids: set[int]) -> list[str]:
    """Remove torch's shared memory of those processes that have ended; returns the names of the files."""
    removed = []
    for path in SHM.glob("torch_*"):
        match = TORCH_SHM.match(path.name)
        if match and int(match[1]) in pids and has_ended(int(match[1])):
            path.unlink(missing_ok=True)
            removed.append(path.name)
    return removed


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie, which holds no memory until its parent waits for it."""
    try:
        return Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").startswith("0 ")
    except OSError:
        return True


def gpu_processes(pids: Iterable[int]) -> list[str]:
    """The lines of nvidia-smi about those processes that still hold GPU memory."""
    if not shutil.which("nvidia-smi"):
        return []
    listed = command_output("nvidia-smi", "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader")
    pid_texts = set(map(str, pids))
    return [line for line in listed.splitlines() if line.split(",")[0].strip() in pid_texts]
