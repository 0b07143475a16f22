# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists and removes unmanaged Ray, which was started on a machine without this collection, and reports on it.

Containers with CLUSTER_LABEL, and processes with the environment variable that MARK_VARIABLE or CLUSTER names, belong
to the collection. They are never listed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..argus.common.findings import Finding
from ..argus.common.identity import CLUSTER
from ..argus.common.node_process import MARK_VARIABLE, PROC
from .engine import CLUSTER_LABEL, NOT_INSTALLED, Run, error_message
from .system import CONTAINER_ID, RAY_PROGRAMS, user_name

# Matches mvp-ray-head and ray_worker.
RAY_CONTAINER_NAME = re.compile(r"(?:^|[-_.])ray(?:[-_.]|$)", re.IGNORECASE)
# The title of a Ray worker is the name of its actor or task.
WORKER_TITLE_PREFIX = "ray::"
# Titles of workers that run no job.
IDLE_TITLES = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
# Parts of the command lines of Ray's other processes.
RAY_PATH_PARTS = ("/ray/dashboard/", "/ray/_private/", "/ray/autoscaler/")
VERL_TRAINER_MODULE = "verl.trainer."
MAX_TITLE_CHARS, MAX_TITLES = 80, 5
KILL_GRACE_SECONDS, POLL_SECONDS = 10.0, 0.1
KIND_PROCESSES, KIND_CONTAINER = "processes", "container"


@dataclass(frozen=True)
class UnmanagedRay:
    """A container with Ray, or all processes of Ray that one user has outside of containers."""

    # The name of the container, or ray@<user>.
    name: str
    # KIND_CONTAINER or KIND_PROCESSES.
    kind: str
    # The user; for a container of Docker Compose, the directory of its project.
    owner: str
    # The titles (command lines) of processes that run jobs; empty if no job runs.
    job_titles: Sequence[str] = ()
    pids: Sequence[int] = ()


class UnmanagedRayError(Exception):
    """Ray cannot be listed or removed; the message says why and what to do."""


@dataclass(frozen=True)
class MachineProcess:
    """A process of the machine, in a container or not."""

    pid: int
    uid: int
    cmdline: str
    # Empty outside of containers.
    container_id: str
    managed: bool

    @property
    def program(self) -> str:
        return self.cmdline.partition(" ")[0].rpartition("/")[2]

    @property
    def is_ray(self) -> bool:
        named = self.program in RAY_PROGRAMS or self.cmdline.startswith(WORKER_TITLE_PREFIX)
        return named or any(part in self.cmdline for part in RAY_PATH_PARTS)

    @property
    def runs_job(self) -> bool:
        is_worker = self.cmdline.startswith(WORKER_TITLE_PREFIX) and not self.cmdline.startswith(IDLE_TITLES)
        return is_worker or VERL_TRAINER_MODULE in self.cmdline


def read_processes(proc: Path) -> Iterator[MachineProcess]:
    for entry in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            uid = entry.stat().st_uid
            cmdline = os.fsdecode((entry / "cmdline").read_bytes()).replace("\0", " ").strip()
            container_id = ["", *CONTAINER_ID.findall((entry / "cgroup").read_text())][-1]
            yield MachineProcess(int(entry.name), uid, cmdline, container_id, _is_managed(entry))


def _is_managed(entry: Path) -> bool:
    """Whether a process belongs to this collection. False if its environment cannot be read."""
    with contextlib.suppress(OSError):
        names = {variable.partition(b"=")[0] for variable in (entry / "environ").read_bytes().split(b"\0")}
        return bool(names & {MARK_VARIABLE.encode(), CLUSTER.encode()})
    return False


def titles_of_jobs(processes: Iterable[MachineProcess]) -> tuple[str, ...]:
    return tuple(sorted({process.cmdline[:MAX_TITLE_CHARS] for process in processes if process.runs_job})[:MAX_TITLES])


class UnmanagedRayOnMachine:
    """Lists and removes the unmanaged Ray of this machine. engine: the command of the engine, docker or podman."""

    def __init__(self, engine: str, run: Run, proc: Path = PROC) -> None:
        self.engine, self.run, self.proc = engine, run, proc

    def list_all(self) -> list[UnmanagedRay]:
        """Return all unmanaged Ray. Raises UnmanagedRayError if the engine does not answer."""
        processes = sorted(read_processes(self.proc), key=lambda process: process.pid)
        container_ids = self._engine_command("ps", "-aq", "--no-trunc").split()
        infos = json.loads(self._engine_command("container", "inspect", *container_ids)) if container_ids else []
        ray_container_ids = {process.container_id for process in processes if process.program in RAY_PROGRAMS}
        # A container without our label is managed if it runs a managed process, as a pod of another platform may.
        managed = {process.container_id for process in processes if process.managed}
        managed |= {info["Id"] for info in infos if CLUSTER_LABEL in ((info.get("Config") or {}).get("Labels") or {})}
        containers = [info for info in infos if info["Id"] not in managed and _contains_ray(info, ray_container_ids)]
        return [*self._processes_by_user(processes), *(self._from_container(info, processes) for info in containers)]

    def remove(self, ray: UnmanagedRay) -> None:
        """Remove a container, or end the processes of a user. Raises UnmanagedRayError."""
        if ray.kind == KIND_CONTAINER:
            self._engine_command("rm", "--force", "--volumes", ray.name)
        else:
            self._kill(ray)

    def _processes_by_user(self, processes: Sequence[MachineProcess]) -> Iterator[UnmanagedRay]:
        """Yield the Ray of each user outside of containers."""
        bare = [process for process in processes if not process.container_id and not process.managed]
        for uid in sorted({process.uid for process in bare if process.program in RAY_PROGRAMS}):
            of_user = [process for process in bare if process.uid == uid and (process.is_ray or process.runs_job)]
            name, pids = user_name(uid), [process.pid for process in of_user]
            yield UnmanagedRay(f"ray@{name}", KIND_PROCESSES, name, titles_of_jobs(of_user), pids)

    def _from_container(self, info: Mapping[str, Any], processes: Sequence[MachineProcess]) -> UnmanagedRay:
        inside = [process for process in processes if process.container_id == info["Id"]]
        config = info.get("Config") or {}
        labels = config.get("Labels") or {}
        owner = labels.get("com.docker.compose.project.working_dir") or config.get("User") or "root"
        pids = [process.pid for process in inside]
        return UnmanagedRay(info["Name"].lstrip("/"), KIND_CONTAINER, str(owner), titles_of_jobs(inside), pids)

    def _kill(self, ray: UnmanagedRay) -> None:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._remaining_pids(ray):
                try:
                    os.kill(pid, signum)
                except ProcessLookupError:
                    continue
                except PermissionError as error:
                    message = f"{ray.name} is of another user: set ansible_become for the machine"
                    raise UnmanagedRayError(message) from error
            deadline = time.monotonic() + KILL_GRACE_SECONDS
            while self._remaining_pids(ray):
                if time.monotonic() > deadline:
                    break
                time.sleep(POLL_SECONDS)
            else:
                return
        raise UnmanagedRayError(f"{ray.name} does not end, even with SIGKILL; see ps and dmesg")

    def _remaining_pids(self, ray: UnmanagedRay) -> list[int]:
        """Return the pids that still run Ray. A pid that runs anything else was reused after its process ended."""
        processes = [process for process in read_processes(self.proc) if process.pid in ray.pids]
        return [process.pid for process in processes if (process.is_ray or process.runs_job) and not process.managed]

    def _engine_command(self, *arguments: str) -> str:
        code, out, err = self.run([self.engine, *arguments])
        if code == NOT_INSTALLED:
            return ""
        if code:
            raise UnmanagedRayError(f'"{self.engine} {" ".join(arguments[:3])}" failed: {error_message(out, err)}')
        return out


def _contains_ray(info: Mapping[str, Any], ray_container_ids: set[str]) -> bool:
    config, is_named = info.get("Config") or {}, bool(RAY_CONTAINER_NAME.search(info["Name"].lstrip("/")))
    command = " ".join([*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])])
    return info["Id"] in ray_container_ids or is_named or "ray start" in command


# The report on the unmanaged Ray of a machine.
def busy_findings(
    host: str, rays: Sequence[UnmanagedRay], names_to_remove: Collection[str], allow_disruption: bool
) -> list[Finding]:
    """Return an error for each name to remove that runs jobs; none with allow_disruption."""
    if allow_disruption:
        return []
    remedy = "wait for it, or end it with -e allow_disruption=true"
    busy = [ray for ray in rays if ray.name in names_to_remove and ray.job_titles]
    return [Finding(host, f"{ray.name} runs {', '.join(ray.job_titles)}", remedy) for ray in busy]


def unmanaged_report(
    host: str, rays: Sequence[UnmanagedRay], names_to_remove: Sequence[str], allow_disruption: bool
) -> dict[str, Any]:
    """Return this machine's part of the report on all machines. missing: the names to remove that it does not have."""
    return {
        "rows": [[host, ray.name, ray.kind, ray.owner, ", ".join(ray.job_titles)] for ray in rays],
        "findings": [finding.as_dict() for finding in busy_findings(host, rays, names_to_remove, allow_disruption)],
        "missing": [name for name in names_to_remove if name not in {ray.name for ray in rays}],
    }
