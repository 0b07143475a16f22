# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating system of a machine, its processes and what /proc tells of them, and the Python of nodes."""

from __future__ import annotations

import json
import os
import pwd
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

# A line of /proc/net/tcp and tcp6: number, local address and port, remote ones, state. 0A is LISTEN.
LISTENER = re.compile(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ", re.M)
# Docker, Podman, containerd and CRI-O put the id of a container, among other words, into the name of its cgroup.
CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
MAX_NAME_CHARS = 100
RAY_PROGRAMS = ("raylet", "gcs_server")


def parse_meminfo(text: str) -> dict[str, int]:
    """Return sizes in bytes by name; entries without a unit are no sizes."""
    return {match[1]: int(match[2]) * 1024 for match in re.finditer(r"^(\w+):\s+(\d+) kB$", text, re.M)}


def parse_listeners(text: str) -> set[int]:
    """Return the TCP ports on which a process listens, at any address; connections do not count."""
    return {int(port, 16) for port in LISTENER.findall(text)}


def parse_reserved_ports(text: str) -> list[tuple[int, int]]:
    """Parse net.ipv4.ip_local_reserved_ports, such as ``8080,20000-21999``."""
    matches = re.findall(r"(\d+)(?:-(\d+))?", text)
    return [(int(first), int(last or first)) for first, last in matches]


def parse_ephemeral_range(text: str) -> tuple[int, int] | None:
    """Parse net.ipv4.ip_local_port_range: the first and the last port of outgoing connections."""
    numbers = text.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


@dataclass(frozen=True)
class Process:
    """A process of the machine, in a container or not."""

    pid: int
    name: str
    # The letter of proc_pid_stat(5), such as "S" or "D".
    state: str = ""
    # The id of the container that it runs in; empty outside of containers.
    container: str = ""
    # Memory of a GPU, if it was listed for one.
    memory_mib: int = 0
    # Whether it belongs to a node without a container.
    of_node: bool = False

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}{f', container {self.container[:12]}' if self.container else ''})"


def list_processes(root: Path) -> Iterator[Process]:
    """List all processes, without what `with_origin` adds. root: the directory that holds /proc."""
    for directory in sorted(root.glob("proc/[0-9]*")):
        # Such as "1 (name with (brackets)) S 0 1 …".
        before, bracket, after = read_text(directory / "stat").rpartition(")")
        if bracket and after.split():
            yield Process(int(directory.name), before.partition("(")[2][:MAX_NAME_CHARS], after.split()[0])


def with_origin(root: Path, process: Process) -> Process:
    """Return the process with its container or node. Only its user and root can see that it belongs to a node."""
    ids = CONTAINER_ID.findall(read_text(root / f"proc/{process.pid}/cgroup"))
    environment = read_text(root / f"proc/{process.pid}/environ").split("\0")
    of_node = any(variable.startswith(f"{MARK_VARIABLE}=") for variable in environment)
    return replace(process, container=str(ids[-1]) if ids else "", of_node=of_node)


# A process that only waits for a disk is in state D for less than this.
STUCK_SECONDS = 0.5


@dataclass(frozen=True)
class System:
    """The operating system of a machine."""

    kernel: str = ""
    # Hard limits, of Docker's daemon if there is one: "unlimited", a number (of files, of bytes) or empty.
    open_files: str = ""
    locked_memory: str = ""
    # The file system of /tmp; 0 if it cannot be read.
    tmp_total_bytes: int = 0
    tmp_free_bytes: int = 0
    # Processes that stay in state D: they hang in the kernel.
    stuck: tuple[Process, ...] = ()
    # Processes of RAY_PROGRAMS, in containers or not.
    ray: tuple[Process, ...] = ()
    # The path of Ray's token in the home of Ansible's user; empty without one.
    token: str = ""
    hostname: str = ""
    # The IPv4 addresses to which the machine resolves its own name.
    addresses: Sequence[str] = ()

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> System:
        lists = {name: tuple(Process(**process) for process in answer[name]) for name in ("stuck", "ray")}
        return cls(**{**answer, **lists, "addresses": tuple(answer["addresses"])})


def read_system(root: Path) -> System:
    """Read the operating system below a root directory, which holds /proc, /tmp and the home directory."""
    listed = list(list_processes(root))
    waiting = {proc.pid for proc in listed if proc.state == "D"}
    if waiting:
        time.sleep(STUCK_SECONDS)
    stuck = [proc for proc in list_processes(root) if proc.pid in waiting and proc.state == "D"] if waiting else []
    daemon = next((proc.pid for proc in listed if proc.name == "dockerd"), "self")
    # Another user may not read the limits of the daemon.
    limits = _hard_limits(root, daemon) or _hard_limits(root, "self")
    total, free = _total_and_free_bytes(root / "tmp")
    token = str(Path.home() / ".ray" / "auth_token")
    # A process that has ended (Z, X) has no container any more.
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


def _total_and_free_bytes(path: Path) -> tuple[int, int]:
    try:
        space = shutil.disk_usage(path)
    except OSError:
        return 0, 0
    return space.total, space.free


def _hard_limits(root: Path, pid: int | str) -> dict[str, str]:
    """The hard limits of a process by name, such as "Max open files"; "unlimited", or a number."""
    return dict(re.findall(r"^(Max [a-z ]+?) {2,}\S+ +(\S+)", read_text(root / f"proc/{pid}/limits"), re.M))


RAY = "ray"
# The packages whose versions all ranks have to share, with their names for people.
PACKAGES = {
    "torch": "torch",
    # NCCL's package has the version of CUDA in its name.
    "nvidia-nccl-cu12": "NCCL",
    "nvidia-nccl-cu13": "NCCL",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "verl": "verl",
}
# The node's own Python runs it. It asks by name: reading the metadata of all packages takes most of a second.
SOFTWARE_PROGRAM = f"""
import importlib.metadata, json, platform
versions = {{}}
for name in {[RAY, *PACKAGES]}:
    for distribution in importlib.metadata.distributions(name=name):
        versions.setdefault(name, distribution.version)
print(json.dumps({{"python": platform.python_version(), "packages": versions}}))
"""


@dataclass(frozen=True)
class Software:
    """The Python of a node without a container, and its packages."""

    # The path of Python, ray_node_python.
    path: str
    # The version of Python; empty if it did not answer.
    python: str = ""
    # The versions of Ray and of PACKAGES, as far as they are installed.
    packages: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def parse_software(path: str, code: int, out: str, err: str) -> Software:
    """Parse what SOFTWARE_PROGRAM prints. path: of the Python that ran it."""
    try:
        # An environment may print something of its own first.
        answer = json.loads(out.strip().splitlines()[-1])
        return Software(path, str(answer["python"]), {str(k): str(v) for k, v in answer["packages"].items()})
    except (ValueError, LookupError, TypeError, AttributeError):
        error_lines = (err.strip() or out.strip()).splitlines()[-1:] or [f"exit code {code}"]
        return Software(path, problem=error_lines[0])


def user_name(uid: int) -> str:
    """Return the name of a user; the number if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
