# SPDX-License-Identifier: GPL-3.0-or-later
"""The container engine, as docker and podman print it, and how programs run that may hang for ever."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

CLUSTER_LABEL = "argus.verl.cluster"
NODE_LABEL, ROLE_LABEL = "argus.verl.node", "argus.verl.role"
# What a container was started with: a hash of its arguments, the settings by name, and the variables of NCCL and gloo
# that were derived then, as JSON.
SPECIFICATION_LABEL = "argus.verl.specification"
SETTINGS_LABEL = "argus.verl.settings"
DERIVED_LABEL = "argus.verl.derived"
# The hash of what an image was built from, as images/cpu/build.py also sets it.
INPUTS_LABEL = "argus.verl.inputs"
# Exit codes of a shell for a program that does not exist, and of timeout(1) for one that took too long.
NOT_INSTALLED = 127
TIMED_OUT = 124
# The engines by their commands; NO_ENGINE stands for a machine without one.
DOCKER = "docker"
PODMAN = "podman"
NO_ENGINE = "none"
# Podman starts these again, and the unit does so after a boot. Docker's unless-stopped would not be.
RESTART, RESTART_UNIT = "always", "podman-restart.service"
_ABSENT = re.compile(r"no such (container|object|image)|image not known", re.I)


class EngineStatus(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """Whether the engine can be used; NONE when the machine has none to be used."""

    OK = "ok"
    MISSING = "missing"
    DENIED = "denied"
    NO_ANSWER = "no_answer"
    FAILED = "failed"
    NONE = "none"


RUNNING = "running"
# The states in which a container holds its ports.
UP = (RUNNING, "restarting", "paused")


@dataclass(frozen=True)
class Engine:
    """The container engine of a machine.

    error: why it cannot be used, None with status OK.
    nvidia: whether it can give GPUs to containers.
    rootless: whether it runs as a user without root. limits_pids: whether it can limit the processes of a container.
    lingers, boots: whether containers outlive the user's connection, and start again after a boot.
    tun: whether it may open /dev/net/tun, by which containers without root have networks.
    """

    name: str
    status: EngineStatus
    version: str | None = None
    error: str | None = None
    root_dir: str | None = None
    nvidia: bool = False
    rootless: bool = False
    limits_pids: bool = True
    lingers: bool = True
    boots: bool = True
    tun: bool = True


class EngineError(Exception):
    """A call to the engine failed, for a reason other than that the requested object does not exist."""


def error_message(out: str, err: str) -> str:
    """The message of a failed command, on one line; some commands print it on stdout."""
    return " ".join((err.strip() or out.strip()).split())


def _engine_failure(command: str, code: int, text: str) -> Engine:
    text = text or "no message"
    lower = text.lower()
    if code == NOT_INSTALLED:
        status, error = EngineStatus.MISSING, f'"{command}" is not installed: it is not on PATH'
    elif "permission denied" in lower:
        status, error = EngineStatus.DENIED, f'this user may not use "{command}": {text}'
    elif code == TIMED_OUT or "cannot connect" in lower or "daemon running" in lower:
        status, error = EngineStatus.NO_ANSWER, f'the daemon of "{command}" does not answer: {text}'
    else:
        status, error = EngineStatus.FAILED, f'"{command} info" failed with exit code {code}: {text}'
    return Engine(name=Path(command).name, status=status, error=error)


def parse_engine_info(command: str, code: int, out: str, err: str) -> tuple[Engine, list[str]]:
    """The engine and its directories of CDI, from ``info --format '{{json .}}'`` of docker or podman."""
    try:
        info = json.loads(out)
    except ValueError:
        return _engine_failure(command, code, error_message(out, err)), []
    # Docker 20.10 exits with 0 when its daemon does not answer, and reports it in the JSON; later ones print JSON and
    # fail.
    server_errors = " ".join(info.get("ServerErrors") or [])
    if code or server_errors:
        return _engine_failure(command, code, server_errors or error_message("", err)), []
    if "host" in info and "store" in info:
        # Also printed by the shim "docker" of the package podman-docker.
        return _podman(info), ["/etc/cdi", "/var/run/cdi"]
    devices = [str(device.get("ID")) for device in info.get("DiscoveredDevices") or []]
    nvidia = "nvidia" in (info.get("Runtimes") or {}) or any(name.startswith("nvidia.com/gpu") for name in devices)
    version, root_dir = info["ServerVersion"], info["DockerRootDir"]
    # CDISpecDirs is null unless CDI is enabled in the daemon.
    return Engine(DOCKER, EngineStatus.OK, version, root_dir=root_dir, nvidia=nvidia), list(
        info.get("CDISpecDirs") or []
    )


def _podman(info: Mapping[str, Any]) -> Engine:
    host = info["host"]
    rootless = bool((host.get("security") or {}).get("rootless"))
    # Without root: none with version 1 of cgroups, and with version 2 those that systemd delegates to the user.
    limited = not rootless or (host.get("cgroupVersion") == "v2" and "pids" in host.get("cgroupControllers", ["pids"]))
    return Engine(
        PODMAN,
        EngineStatus.OK,
        str(info["version"]["Version"]),
        root_dir=info["store"]["graphRoot"],
        rootless=rootless,
        limits_pids=limited,
    )


@dataclass(frozen=True)
class Container:
    """A container, as the engine reports it.

    started_at: None for a container that never ran.
    host_ports: the ports that it publishes on the machine.
    """

    id: str
    state: str
    started_at: str | None
    image_id: str
    labels: Mapping[str, str]
    host_ports: Sequence[int]
    host_network: bool

    @property
    def cluster(self) -> str | None:
        return self.labels.get(CLUSTER_LABEL)

    @property
    def specification(self) -> str:
        return self.labels.get(SPECIFICATION_LABEL, "")

    @property
    def settings(self) -> str:
        return self.labels.get(SETTINGS_LABEL, "")

    @property
    def derived(self) -> str:
        return self.labels.get(DERIVED_LABEL, "")


@dataclass(frozen=True)
class Image:
    id: str
    labels: Mapping[str, str]


def _digest(identifier: str) -> str:
    """Docker writes "sha256:" before the id of an image, podman does not."""
    return f"sha256:{identifier}" if re.fullmatch(r"[0-9a-f]{64}", identifier) else identifier


def parse_containers(text: str) -> dict[str, Container]:
    """Parse the JSON of ``container inspect``; the keys are names."""
    containers = {}
    for item in json.loads(text or "[]"):
        host: dict[str, Any] = item.get("HostConfig") or {}
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


def parse_image(text: str) -> Image | None:
    for item in json.loads(text or "[]"):
        return Image(_digest(item["Id"]), dict((item.get("Config") or {}).get("Labels") or {}))
    return None


def only_absence(err: str) -> bool:
    """Whether the errors on stderr report nothing but objects that do not exist."""
    # Warnings, of the client's own configuration for example, are on stderr as well.
    problems = [line for line in err.splitlines() if line.lower().startswith("error")]
    return bool(problems) and all(map(_ABSENT.search, problems))


def with_systemd(engine: Engine, root: Path, user: str, home: str) -> Engine:
    """Add what systemd does with the containers of Podman, which has no daemon that could start them.

    root: the directory that holds /run, /etc and /var. user, home: of Ansible's user on the machine.
    """
    if not (root / "run/systemd/system").is_dir():
        # No session ends them, and what starts them after a boot is unknown.
        return engine
    wants = [root / "etc/systemd/system"]
    if engine.rootless:
        wants = [root / home.lstrip("/") / ".config/systemd/user", root / "etc/systemd/user"]
    # The link is not followed: the unit itself is elsewhere.
    boots = any((directory / "default.target.wants" / RESTART_UNIT).is_symlink() for directory in wants)
    lingers = not engine.rootless or (root / "var/lib/systemd/linger" / user).exists()
    return replace(engine, boots=boots and lingers, lingers=lingers)


def with_tun(engine: Engine, root: Path) -> Engine:
    """Add whether the networks of containers without root can be made; root makes its own without this device.

    root: the directory that holds /dev.
    """
    return replace(engine, tun=not engine.rootless or os.access(root / "dev/net/tun", os.R_OK | os.W_OK))


# Runs programs that may hang for ever.

# The PATH of a session over SSH often lacks these, where distributions put ibdev2netdev.
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
# How long a killed program has to give back its output; one that hangs in the kernel never does.
KILLED_SECONDS = 0.5


def program_environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN}", "LC_ALL": "C"}


def run_program(argv: Sequence[str], seconds: float) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr; the code is 127 when the program does not exist, 124 after a timeout.

    A program in state D cannot be killed. Its end is not waited for.
    """
    try:
        program = subprocess.Popen(
            argv,
            env=program_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # With the programs that it starts, it can be killed as a group.
            start_new_session=True,
        )
    except FileNotFoundError:
        return NOT_INSTALLED, "", f"{argv[0]}: not found"
    except OSError as error:
        # With a directory on PATH that this user cannot read, as after su, the kernel denies what does not exist.
        name, path = argv[0], program_environment()["PATH"]
        if isinstance(error, PermissionError) and "/" not in name and shutil.which(name, path=path) is None:
            return NOT_INSTALLED, "", f"{argv[0]}: not found"
        return 126, "", str(error)
    try:
        out, err = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(program)
        return TIMED_OUT, "", f"no answer within {seconds:.0f} s"
    return program.returncode, out, err


def _kill(program: subprocess.Popen[str]) -> None:
    with suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        program.communicate(timeout=KILLED_SECONDS)
    for pipe in (program.stdout, program.stderr):
        if pipe:
            pipe.close()
