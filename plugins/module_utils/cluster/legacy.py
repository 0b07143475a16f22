# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds and removes Ray that was started on a machine by hand, outside of this collection.

Containers and processes with a label or mark of this collection are left out, so that none is removed here. Runs on
machines with Python 3.9 and newer.
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
from .engine import CLUSTER_LABEL, NOT_INSTALLED, error_message
from .probe import Run, user_name
from .system import RAY_PROGRAMS

# Such as mvp-ray-head and ray_worker.
RAY_CONTAINER_NAME = re.compile(r"(?:^|[-_.])ray(?:[-_.]|$)", re.IGNORECASE)
CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# A worker of Ray has its actor or task as its title.
WORKER_TITLE_PREFIX = "ray::"
# Workers that run no job.
IDLE_TITLES = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
# Ray's other processes, by what their command lines contain.
RAY_PATH_PARTS = ("/ray/dashboard/", "/ray/_private/", "/ray/autoscaler/")
VERL_TRAINER_MODULE = "verl.trainer."
MAX_TITLE_CHARS, MAX_TITLES = 80, 5
KILL_GRACE_SECONDS, POLL_SECONDS = 10.0, 0.1
KIND_PROCESSES, KIND_CONTAINER = "processes", "container"


@dataclass(frozen=True)
class UnmanagedRay:
    """A container with Ray, or a user's processes of Ray. job_titles: the titles of processes that run jobs."""

    name: str
    kind: str
    owner: str
    job_titles: Sequence[str] = ()
    pids: Sequence[int] = ()


class UnmanagedRayError(Exception):
    """Ray cannot be listed or removed; the message says why and what to do."""


@dataclass(frozen=True)
class MachineProcess:
    """A process of the machine, in a container or not. managed: whether it has a mark of this collection."""

    pid: int
    uid: int
    cmdline: str
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


def list_processes(proc: Path) -> Iterator[MachineProcess]:
    for entry in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            uid = entry.stat().st_uid
            cmdline = os.fsdecode((entry / "cmdline").read_bytes()).replace("\0", " ").strip()
            container_id = ["", *CONTAINER_ID.findall((entry / "cgroup").read_text())][-1]
            yield MachineProcess(int(entry.name), uid, cmdline, container_id, _is_managed(entry))


def _is_managed(entry: Path) -> bool:
    """Whether a process has a mark. False for another user's, which cannot be read, nor be sent a signal."""
    with contextlib.suppress(OSError):
        names = {variable.partition(b"=")[0] for variable in (entry / "environ").read_bytes().split(b"\0")}
        return bool(names & {MARK_VARIABLE.encode(), CLUSTER.encode()})
    return False


def job_titles(running: Iterable[MachineProcess]) -> tuple[str, ...]:
    return tuple(sorted({process.cmdline[:MAX_TITLE_CHARS] for process in running if process.runs_job})[:MAX_TITLES])


class UnmanagedRayFinder:
    def __init__(self, engine: str, run: Run, proc: Path = PROC) -> None:
        self.engine, self.run, self.proc = engine, run, proc

    def find(self) -> list[UnmanagedRay]:
        """All Ray without a mark. Raises UnmanagedRayError if the engine does not answer."""
        running = sorted(list_processes(self.proc), key=lambda process: process.pid)
        container_ids = self._engine_command("ps", "-aq", "--no-trunc").split()
        infos = json.loads(self._engine_command("container", "inspect", *container_ids)) if container_ids else []
        ray_container_ids = {process.container_id for process in running if process.program in RAY_PROGRAMS}
        # Containers that run a managed process count as managed even without our label, such as another platform's pod.
        managed = {process.container_id for process in running if process.managed}
        managed |= {info["Id"] for info in infos if CLUSTER_LABEL in ((info.get("Config") or {}).get("Labels") or {})}
        containers = [info for info in infos if info["Id"] not in managed and _contains_ray(info, ray_container_ids)]
        return [*self._processes_by_user(running), *(self._from_container(info, running) for info in containers)]

    def remove(self, ray: UnmanagedRay) -> None:
        """Remove a container, or end the processes of a user. Raises UnmanagedRayError."""
        if ray.kind == KIND_CONTAINER:
            self._engine_command("rm", "--force", "--volumes", ray.name)
        else:
            self._kill(ray)

    def _processes_by_user(self, running: Sequence[MachineProcess]) -> Iterator[UnmanagedRay]:
        """The Ray of each user outside of containers."""
        bare = [process for process in running if not process.container_id and not process.managed]
        for uid in sorted({process.uid for process in bare if process.program in RAY_PROGRAMS}):
            ray = [process for process in bare if process.uid == uid and (process.is_ray or process.runs_job)]
            name = user_name(uid)
            yield UnmanagedRay(f"ray@{name}", KIND_PROCESSES, name, job_titles(ray), [process.pid for process in ray])

    def _from_container(self, info: Mapping[str, Any], running: Sequence[MachineProcess]) -> UnmanagedRay:
        inside = [process for process in running if process.container_id == info["Id"]]
        config = info.get("Config") or {}
        labels = config.get("Labels") or {}
        owner = labels.get("com.docker.compose.project.working_dir") or config.get("User") or "root"
        pids = [process.pid for process in inside]
        return UnmanagedRay(info["Name"].lstrip("/"), KIND_CONTAINER, str(owner), job_titles(inside), pids)

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
        """The pids that still run Ray. Any other process has reused the pid of one that ended."""
        running = [process for process in list_processes(self.proc) if process.pid in ray.pids]
        return [process.pid for process in running if (process.is_ray or process.runs_job) and not process.managed]

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


def busy_findings(
    host: str, rays: Sequence[UnmanagedRay], names_to_remove: Collection[str], allow_disruption: bool
) -> list[Finding]:
    """The containers and users' Rays that are not removed, because they run jobs."""
    if allow_disruption:
        return []
    remedy = "wait for it, or end it with -e allow_disruption=true"
    busy = [ray for ray in rays if ray.name in names_to_remove and ray.job_titles]
    return [Finding(host, f"{ray.name} runs {', '.join(ray.job_titles)}", remedy) for ray in busy]


def unmanaged_report(
    host: str, rays: Sequence[UnmanagedRay], remove: Sequence[str], allow_disruption: bool
) -> dict[str, Any]:
    """The part of a machine in the report of all machines, and which of the names to remove it has not."""
    return {
        "rows": [[host, ray.name, ray.kind, ray.owner, ", ".join(ray.job_titles)] for ray in rays],
        "findings": [finding.as_dict() for finding in busy_findings(host, rays, remove, allow_disruption)],
        "missing": [name for name in remove if name not in {ray.name for ray in rays}],
    }
