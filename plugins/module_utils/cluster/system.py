# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating system of a machine: its processes, its kernel log, and the Python of a node without a container."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..argus.common.node_process import MARK_VARIABLE
from ..network.interfaces import read_text, resolve

# The processes of a machine, from /proc.

# Docker, Podman, containerd and CRI-O name a container's cgroup after its id, with words of their own around it.
CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
MAX_NAME_CHARS = 100


@dataclass(frozen=True)
class Process:
    """A process. container: the id of the one that it runs in, or empty. memory_mib: what it has of a GPU.

    of_node: whether it is of a node without a container.
    """

    pid: int
    name: str
    state: str = ""
    container: str = ""
    memory_mib: int = 0
    of_node: bool = False

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}{f', container {self.container[:12]}' if self.container else ''})"


def processes(root: Path) -> Iterator[Process]:
    """All processes, without what `with_origin` adds."""
    for directory in sorted(root.glob("proc/[0-9]*")):
        # Such as "1 (name with (brackets)) S 0 1 …".
        before, bracket, after = read_text(directory / "stat").rpartition(")")
        if bracket and after.split():
            yield Process(int(directory.name), before.partition("(")[2][:MAX_NAME_CHARS], after.split()[0])


def with_origin(root: Path, process: Process) -> Process:
    """The process with its container or node. Only its user and root can see that it is of a node."""
    ids = CONTAINER.findall(read_text(root / f"proc/{process.pid}/cgroup"))
    environment = read_text(root / f"proc/{process.pid}/environ").split("\0")
    of_node = any(variable.startswith(f"{MARK_VARIABLE}=") for variable in environment)
    return replace(process, container=str(ids[-1]) if ids else "", of_node=of_node)


# The operating system of a machine, its kernel log, and the Python of a node without a container.

# A process that waits for a disk is in state D for moments.
STUCK_SECONDS = 0.5
RAY_PROGRAMS = ("raylet", "gcs_server")
RAY = "ray"
# The packages that ranks have to agree on, with their names for people.
PACKAGES = {
    "torch": "torch",
    # NCCL's package has the version of CUDA in its name.
    "nvidia-nccl-cu12": "NCCL",
    "nvidia-nccl-cu13": "NCCL",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "verl": "verl",
}
# By name: reading the metadata of all packages takes most of a second.
SOFTWARE_PROGRAM = f"""
import importlib.metadata, json, platform
versions = {{}}
for name in {[RAY, *PACKAGES]}:
    for distribution in importlib.metadata.distributions(name=name):
        versions.setdefault(name, distribution.version)
print(json.dumps({{"python": platform.python_version(), "packages": versions}}))
"""


@dataclass(frozen=True)
class System:
    """The operating system, as the machine answers.

    open_files, locked_memory: hard limits, of the engine's daemon if there is one; "unlimited", a number or empty.
    tmp_total_bytes, tmp_free_bytes: 0 if not known.
    stuck: processes that were in state D for a while. ray: those of Ray, in any container.
    token: the path of one in the home of Ansible's user, or empty.
    addresses: what the machine resolves its own name to, of IPv4.
    """

    kernel: str = ""
    open_files: str = ""
    locked_memory: str = ""
    tmp_total_bytes: int = 0
    tmp_free_bytes: int = 0
    stuck: tuple[Process, ...] = ()
    ray: tuple[Process, ...] = ()
    token: str = ""
    hostname: str = ""
    addresses: Sequence[str] = ()

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> System:
        lists = {name: tuple(Process(**process) for process in answer[name]) for name in ("stuck", "ray")}
        return cls(**{**answer, **lists, "addresses": tuple(answer["addresses"])})


def read_system(root: Path) -> System:
    listed = list(processes(root))
    waiting = {proc.pid for proc in listed if proc.state == "D"}
    if waiting:
        time.sleep(STUCK_SECONDS)
    stuck = [proc for proc in processes(root) if proc.pid in waiting and proc.state == "D"] if waiting else []
    daemon = next((proc.pid for proc in listed if proc.name == "dockerd"), "self")
    # Another user may not read the limits of the daemon.
    limits = _limits(root, daemon) or _limits(root, "self")
    total, free = _space(root / "tmp")
    token = str(Path.home() / ".ray" / "auth_token")
    # A process that has ended has no container any more.
    ray = [proc for proc in listed if proc.name in RAY_PROGRAMS and proc.state not in "ZX"]
    hostname = socket.gethostname()
    return System(
        kernel=read_text(root / "proc/sys/kernel/osrelease"),
        open_files=limits.get("Max open files", ""),
        locked_memory=limits.get("Max locked memory", ""),
        tmp_total_bytes=total,
        tmp_free_bytes=free,
        stuck=tuple(stuck),
        ray=tuple(with_origin(root, proc) for proc in ray),
        token=token if os.path.lexists(root / token.lstrip("/")) else "",
        hostname=hostname,
        addresses=tuple(address for address in resolve(hostname) if ":" not in address),
    )


def _space(path: Path) -> tuple[int, int]:
    try:
        space = shutil.disk_usage(path)
    except OSError:
        return 0, 0
    return space.total, space.free


def _limits(root: Path, pid: int | str) -> dict[str, str]:
    """The hard limits of a process by name, such as "Max open files"; "unlimited", or a number."""
    return dict(re.findall(r"^(Max [a-z ]+?) {2,}\S+ +(\S+)", read_text(root / f"proc/{pid}/limits"), re.M))


@dataclass(frozen=True)
class Software:
    """The Python of a node without a container, and its packages. path: of Python. problem: why it did not answer."""

    path: str
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def parse_software(path: str, code: int, out: str, err: str) -> Software:
    """Parse what SOFTWARE_PROGRAM prints."""
    try:
        # An environment may print something of its own first.
        answer = json.loads(out.strip().splitlines()[-1])
        return Software(path, str(answer["python"]), {str(k): str(v) for k, v in answer["packages"].items()})
    except (ValueError, LookupError, TypeError, AttributeError):
        error_lines = (err.strip() or out.strip()).splitlines()[-1:] or [f"exit code {code}"]
        return Software(path, problem=error_lines[0])
