# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray that was started by hand on a machine, before this collection or beside it: what there is, and its removal.

Nothing that has a label or a mark of this collection is found here, so that it cannot be removed here. Runs on machines
with Python 3.9 and newer.
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
from .engine import CLUSTER_LABEL, NOT_INSTALLED, message
from .probe import Run, user_name
from .system import RAY_PROGRAMS

# Such as mvp-ray-head and ray_worker.
RAY_NAME = re.compile(r"(?:^|[-_.])ray(?:[-_.]|$)", re.IGNORECASE)
CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# The titles of Ray's workers, and those of them that are no work.
WORKER = "ray::"
NO_WORK = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
# Ray's other processes, by what their command lines contain.
OF_RAY = ("/ray/dashboard/", "/ray/_private/", "/ray/autoscaler/")
TRAINER = "verl.trainer."
TITLE_LENGTH, MOST_TITLES = 80, 5
END_SECONDS, POLL_SECONDS = 10.0, 0.1
PROCESSES, CONTAINER = "processes", "container"


@dataclass(frozen=True)
class Legacy:
    """A container, or the Ray of a user. work: the titles of its jobs' processes. processes: their numbers, of all."""

    name: str
    kind: str
    owner: str
    work: Sequence[str] = ()
    processes: Sequence[int] = ()


class LegacyError(Exception):
    """It cannot be listed or removed; the message says why and what to do."""


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
    """Of another user, it cannot be read, and no signal would reach it either."""
    with contextlib.suppress(OSError):
        names = {variable.partition(b"=")[0] for variable in (entry / "environ").read_bytes().split(b"\0")}
        return bool(names & {MARK.encode(), CLUSTER.encode()})
    return False


def titles(found: Iterable[Process]) -> tuple[str, ...]:
    return tuple(sorted({process.title[:TITLE_LENGTH] for process in found if process.is_work})[:MOST_TITLES])


class LegacyMachine:
    def __init__(self, engine: str, run: Run, proc: Path = PROC) -> None:
        self.engine, self.run, self.proc = engine, run, proc

    def look(self) -> list[Legacy]:
        """All of it. Raises LegacyError if the engine does not answer."""
        running = sorted(processes(self.proc), key=lambda process: process.pid)
        identifiers = self._ask("ps", "-aq", "--no-trunc").split()
        inspected = json.loads(self._ask("container", "inspect", *identifiers)) if identifiers else []
        with_ray = {process.container for process in running if process.program in RAY_PROGRAMS}
        # Also without a label: nodes that are processes may run in a container of a platform.
        ours = {process.container for process in running if process.ours}
        ours |= {one["Id"] for one in inspected if CLUSTER_LABEL in ((one.get("Config") or {}).get("Labels") or {})}
        containers = [one for one in inspected if one["Id"] not in ours and _is_legacy(one, with_ray)]
        return [*self._of_users(running), *(self._container(one, running) for one in containers)]

    def remove(self, asked: Legacy) -> None:
        """Raises LegacyError."""
        if asked.kind == CONTAINER:
            self._ask("rm", "--force", "--volumes", asked.name)
        else:
            self._end(asked)

    def _of_users(self, running: Sequence[Process]) -> Iterator[Legacy]:
        """The Ray of each user outside of containers."""
        bare = [process for process in running if not process.container and not process.ours]
        for user in sorted({process.user for process in bare if process.program in RAY_PROGRAMS}):
            ray = [process for process in bare if process.user == user and (process.is_ray or process.is_work)]
            name = user_name(user)
            yield Legacy(f"ray@{name}", PROCESSES, name, titles(ray), [process.pid for process in ray])

    def _container(self, one: Mapping[str, Any], running: Sequence[Process]) -> Legacy:
        inside = [process for process in running if process.container == one["Id"]]
        config = one.get("Config") or {}
        labels = config.get("Labels") or {}
        owner = labels.get("com.docker.compose.project.working_dir") or config.get("User") or "root"
        pids = [process.pid for process in inside]
        return Legacy(one["Name"].lstrip("/"), CONTAINER, str(owner), titles(inside), pids)

    def _end(self, asked: Legacy) -> None:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._left(asked):
                try:
                    os.kill(pid, signum)
                except ProcessLookupError:
                    continue
                except PermissionError as error:
                    raise LegacyError(f"{asked.name} is of another user: set ansible_become for the machine") from error
            deadline = time.monotonic() + END_SECONDS
            while self._left(asked):
                if time.monotonic() > deadline:
                    break
                time.sleep(POLL_SECONDS)
            else:
                return
        raise LegacyError(f"{asked.name} does not end, even with SIGKILL; see ps and dmesg")

    def _left(self, asked: Legacy) -> list[int]:
        """Those that still run. A process that is not of Ray has the number of one that has ended."""
        running = [process for process in processes(self.proc) if process.pid in asked.processes]
        return [process.pid for process in running if (process.is_ray or process.is_work) and not process.ours]

    def _ask(self, *arguments: str) -> str:
        code, out, err = self.run([self.engine, *arguments])
        if code == NOT_INSTALLED:
            return ""
        if code:
            raise LegacyError(f'"{self.engine} {" ".join(arguments[:3])}" failed: {message(out, err)}')
        return out


def _is_legacy(one: Mapping[str, Any], with_ray: set[str]) -> bool:
    config = one.get("Config") or {}
    command = " ".join([*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])])
    return one["Id"] in with_ray or bool(RAY_NAME.search(one["Name"].lstrip("/"))) or "ray start" in command


def refusals(host: str, found: Sequence[Legacy], names: Collection[str], ends_jobs: bool) -> list[Finding]:
    """What is named and not removed, and why."""
    if ends_jobs:
        return []
    todo = "wait for it, or end it with -e allow_disruption=true"
    return [
        Finding(host, f"{one.name} runs {', '.join(one.work)}", todo) for one in found if one.name in names and one.work
    ]


def legacy_report(host: str, found: Sequence[Legacy], remove: Sequence[str], ends_jobs: bool) -> dict[str, Any]:
    """The part of a machine in the report of all machines, and which of the names to remove it has not."""
    return {
        "rows": [[host, one.name, one.kind, one.owner, ", ".join(one.work)] for one in found],
        "findings": [finding.as_dict() for finding in refusals(host, found, remove, ends_jobs)],
        "missing": [name for name in remove if name not in {one.name for one in found}],
    }
