# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine is: its GPUs, HCAs, memory, mounts and container engine, read in one go.

Parsers are pure functions over what the tools print. Probe does the reading; tests give it recorded trees.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

NOT_INSTALLED = 127
TIMED_OUT = 124


def _message(out: str, err: str) -> str:
    """What a failed command said, on one line; nvidia-smi says it on stdout."""
    return " ".join((err.strip() or out.strip()).split())


# What Engine.status can be.
OK = "ok"
MISSING = "missing"
DENIED = "denied"
NO_ANSWER = "no_answer"
FAILED = "failed"
NONE = "none"


@dataclass(frozen=True)
class Engine:
    """status: "ok", or why it cannot be used: "missing", "denied", "no_answer", "failed"; "none" when none was asked.

    nvidia: whether it can hand GPUs to containers.
    """

    name: str
    status: str
    version: str | None = None
    error: str | None = None
    root_dir: str | None = None
    nvidia: bool = False


class EngineError(Exception):
    """A call to the engine failed, for a reason other than that the thing asked for does not exist."""


class EngineInfo(NamedTuple):
    engine: Engine
    cdi_directories: list[str]


def _engine_failure(command: str, code: int, text: str) -> Engine:
    text = text or "no message"
    lower = text.lower()
    if code == NOT_INSTALLED:
        status, error = MISSING, f'"{command}" is not installed: it is not on PATH'
    elif "permission denied" in lower:
        status, error = DENIED, f'this user may not use "{command}": {text}'
    elif code == TIMED_OUT or "cannot connect" in lower or "daemon running" in lower:
        status, error = NO_ANSWER, f'the daemon of "{command}" does not answer: {text}'
    else:
        status, error = FAILED, f'"{command} info" failed with exit code {code}: {text}'
    return Engine(name=Path(command).name, status=status, error=error)


def parse_engine_info(command: str, code: int, out: str, err: str) -> EngineInfo:
    """What ``info --format '{{json .}}'`` says, of docker and of podman."""
    try:
        info = json.loads(out)
    except ValueError:
        return EngineInfo(_engine_failure(command, code, _message(out, err)), [])
    # Docker 20.10 ends with 0 when its daemon does not answer, and says so in the JSON; later ones print JSON and fail.
    said = " ".join(info.get("ServerErrors") or [])
    if code or said:
        return EngineInfo(_engine_failure(command, code, said or _message("", err)), [])
    if "host" in info and "store" in info:
        # Also what the shim "docker" of the package podman-docker prints.
        engine = Engine("podman", OK, str(info["version"]["Version"]), root_dir=info["store"]["graphRoot"])
        return EngineInfo(engine, ["/etc/cdi", "/var/run/cdi"])
    devices = [str(device.get("ID")) for device in info.get("DiscoveredDevices") or []]
    nvidia = "nvidia" in (info.get("Runtimes") or {}) or any(name.startswith("nvidia.com/gpu") for name in devices)
    engine = Engine("docker", OK, info["ServerVersion"], root_dir=info["DockerRootDir"], nvidia=nvidia)
    # Null unless the daemon has CDI switched on.
    return EngineInfo(engine, list(info.get("CDISpecDirs") or []))


@dataclass(frozen=True)
class Container:
    """started_at is None for one that never ran. host_ports are those that it publishes on the machine."""

    id: str
    state: str
    started_at: str | None
    image_id: str
    labels: dict[str, str]
    host_ports: list[int]
    host_network: bool


def _digest(identifier: str) -> str:
    """Docker writes "sha256:" before an image's id, podman does not."""
    return f"sha256:{identifier}" if re.fullmatch(r"[0-9a-f]{64}", identifier) else identifier


def parse_containers(text: str) -> dict[str, Container]:
    """By name, from the JSON of ``container inspect``."""
    containers = {}
    for item in json.loads(text or "[]"):
        host = item.get("HostConfig") or {}
        bindings = [binding for port in (host.get("PortBindings") or {}).values() for binding in port or []]
        started = str(item["State"].get("StartedAt") or "")
        containers[item["Name"].lstrip("/")] = Container(
            id=item["Id"],
            state=item["State"]["Status"],
            started_at=None if started.startswith("0001-") or not started else started,
            image_id=_digest(item["Image"]),
            labels=dict(item["Config"].get("Labels") or {}),
            host_ports=sorted({int(binding["HostPort"]) for binding in bindings if binding.get("HostPort")}),
            host_network=host.get("NetworkMode") == "host",
        )
    return containers


def parse_image(text: str) -> dict[str, Any] | None:
    """Id and labels, from the JSON of ``image inspect`` for one reference."""
    for item in json.loads(text or "[]"):
        return {"id": _digest(item["Id"]), "labels": dict((item.get("Config") or {}).get("Labels") or {})}
    return None


_ABSENT = re.compile(r"no such (container|object|image)|image not known", re.I)
