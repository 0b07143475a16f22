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
from ..argus.common.node_process import MARK, PROC
from .engine import CLUSTER_LABEL, NOT_INSTALLED, error_message
from .probe import Run, user_name
from .system import RAY_PROGRAMS

# Such as mvp-ray-head and ray_worker.
RAY_NAME = re.compile(r"(?:^|[-_.])ray(?:[-_.]|$)", re.IGNORECASE)
CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# The titles of Ray's workers, and of those that run no job.
WORKER = "ray::"
NO_WORK = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
# Ray's other processes, by what their command lines contain.
OF_RAY = ("/ray/dashboard/", "/ray/_private/", "/ray/autoscaler/")
TRAINER = "verl.trainer."
TITLE_LENGTH, MOST_TITLES = 80, 5
END_SECONDS, POLL_SECONDS = 10.0, 0.1
PROCESSES, CONTAINER = "processes", "container"


@dataclass(frozen=True)
class LegacyRay:
    """A container with Ray, or a user's processes of Ray. work: titles of its jobs' processes. processes: all pids."""

    name: str
    kind: str
    owner: str
    work: Sequence[str] = ()
    processes: Sequence[int] = ()


class LegacyError(Exception):
    """Ray cannot be listed or removed; the message says why and what to do."""


@dataclass(frozen=True)
class Process:
    """A process of the machine, also of a container. ours: whether it has a mark of this collection."""

    pid: int
    user: int
    title: str
    container: str
    ours: bool

    @property
    def program(self) -> str:
        return self.title.partition(" ")[0].rpartition("/")[2]

    @property
    def is_ray(self) -> bool:
        named = self.program in RAY_PROGRAMS or self.title.startswith(WORKER)
        return named or any(part in self.title for part in OF_RAY)

    @property
    def is_work(self) -> bool:
        return (self.title.startswith(WORKER) and not self.title.startswith(NO_WORK)) or TRAINER in self.title


def processes(proc: Path) -> Iterator[Process]:
    for entry in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            user = entry.stat().st_uid
            title = os.fsdecode((entry / "cmdline").read_bytes()).replace("\0", " ").strip()
            containers = CONTAINER_ID.findall((entry / "cgroup").read_text())
            yield Process(int(entry.name), user, title, containers[-1] if containers else "", _is_ours(entry))


def _is_ours(entry: Path) -> bool:
    """Whether a process has a mark; that of another user cannot be read, but gets no signal either."""
    with contextlib.suppress(OSError):
        names = {variable.partition(b"=")[0] for variable in (entry / "environ").read_bytes().split(b"\0")}
        return bool(names & {MARK.encode(), CLUSTER.encode()})
    return False


def job_titles(running: Iterable[Process]) -> tuple[str, ...]:
    return tuple(sorted({process.title[:TITLE_LENGTH] for process in running if process.is_work})[:MOST_TITLES])


class LegacyMachine:
    def __init__(self, engine: str, run: Run, proc: Path = PROC) -> None:
        self.engine, self.run, self.proc = engine, run, proc

    def rays(self) -> list[LegacyRay]:
        """All Ray without a mark. Raises LegacyError if the engine does not answer."""
        running = sorted(processes(self.proc), key=lambda process: process.pid)
        identifiers = self._ask("ps", "-aq", "--no-trunc").split()
        inspected = json.loads(self._ask("container", "inspect", *identifiers)) if identifiers else []
        with_ray = {process.container for process in running if process.program in RAY_PROGRAMS}
        # Also without a label: nodes that are processes may run in a container of a platform.
        ours = {process.container for process in running if process.ours}
        ours |= {info["Id"] for info in inspected if CLUSTER_LABEL in ((info.get("Config") or {}).get("Labels") or {})}
        containers = [info for info in inspected if info["Id"] not in ours and _is_legacy(info, with_ray)]
        return [*self._of_users(running), *(self._container(info, running) for info in containers)]

    def remove(self, ray: LegacyRay) -> None:
        """Remove a container, or end the processes of a user. Raises LegacyError."""
        if ray.kind == CONTAINER:
            self._ask("rm", "--force", "--volumes", ray.name)
        else:
            self._end(ray)

    def _of_users(self, running: Sequence[Process]) -> Iterator[LegacyRay]:
        """The Ray of each user outside of containers."""
        bare = [process for process in running if not process.container and not process.ours]
        for user in sorted({process.user for process in bare if process.program in RAY_PROGRAMS}):
            ray = [process for process in bare if process.user == user and (process.is_ray or process.is_work)]
            name = user_name(user)
            yield LegacyRay(f"ray@{name}", PROCESSES, name, job_titles(ray), [process.pid for process in ray])

    def _container(self, info: Mapping[str, Any], running: Sequence[Process]) -> LegacyRay:
        inside = [process for process in running if process.container == info["Id"]]
        config = info.get("Config") or {}
        labels = config.get("Labels") or {}
        owner = labels.get("com.docker.compose.project.working_dir") or config.get("User") or "root"
        pids = [process.pid for process in inside]
        return LegacyRay(info["Name"].lstrip("/"), CONTAINER, str(owner), job_titles(inside), pids)

    def _end(self, ray: LegacyRay) -> None:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._running(ray):
                try:
                    os.kill(pid, signum)
                except ProcessLookupError:
                    continue
                except PermissionError as error:
                    raise LegacyError(f"{ray.name} is of another user: set ansible_become for the machine") from error
            deadline = time.monotonic() + END_SECONDS
            while self._running(ray):
                if time.monotonic() > deadline:
                    break
                time.sleep(POLL_SECONDS)
            else:
                return
        raise LegacyError(f"{ray.name} does not end, even with SIGKILL; see ps and dmesg")

    def _running(self, ray: LegacyRay) -> list[int]:
        """The pids that still run. A process that is not of Ray has reused the pid of one that ended."""
        running = [process for process in processes(self.proc) if process.pid in ray.processes]
        return [process.pid for process in running if (process.is_ray or process.is_work) and not process.ours]

    def _ask(self, *arguments: str) -> str:
        code, out, err = self.run([self.engine, *arguments])
        if code == NOT_INSTALLED:
            return ""
        if code:
            raise LegacyError(f'"{self.engine} {" ".join(arguments[:3])}" failed: {error_message(out, err)}')
        return out


def _is_legacy(info: Mapping[str, Any], with_ray: set[str]) -> bool:
    config = info.get("Config") or {}
    command = " ".join([*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])])
    return info["Id"] in with_ray or bool(RAY_NAME.search(info["Name"].lstrip("/"))) or "ray start" in command


def refusals(host: str, rays: Sequence[LegacyRay], names: Collection[str], ends_jobs: bool) -> list[Finding]:
    """The containers and users' Rays with these names that are not removed, because they run jobs."""
    if ends_jobs:
        return []
    remedy = "wait for it, or end it with -e allow_disruption=true"
    busy = [ray for ray in rays if ray.name in names and ray.work]
    return [Finding(host, f"{ray.name} runs {', '.join(ray.work)}", remedy) for ray in busy]


def legacy_report(host: str, rays: Sequence[LegacyRay], remove: Sequence[str], ends_jobs: bool) -> dict[str, Any]:
    """The part of a machine in the report of all machines, and which of the names to remove it has not."""
    return {
        "rows": [[host, ray.name, ray.kind, ray.owner, ", ".join(ray.work)] for ray in rays],
        "findings": [finding.as_dict() for finding in refusals(host, rays, remove, ends_jobs)],
        "missing": [name for name in remove if name not in {ray.name for ray in rays}],
    }
