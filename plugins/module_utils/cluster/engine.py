# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs programs; and parses the output of a container engine (docker, podman) about itself, containers and images."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

# Exit codes of a shell for a program that does not exist, and of timeout(1) for one that took too long.
NOT_INSTALLED = 127
TIMED_OUT = 124
# Directories to add to PATH, which often lacks them in a session over SSH. Distributions put ibdev2netdev there.
SBIN_DIRS = "/usr/local/sbin:/usr/sbin:/sbin"
# How long to wait for the end of a killed program. One that hangs in the kernel never ends.
KILL_WAIT_SECONDS = 0.5
# The time limit of run_command. Without persistence mode, nvidia-smi initialises every GPU first, which takes seconds.
COMMAND_SECONDS = 30.0
Run = Callable[[Sequence[str]], "tuple[int, str, str]"]  # a function such as run_command


def program_environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN_DIRS}", "LC_ALL": "C"}


def run_command(argv: Sequence[str]) -> tuple[int, str, str]:
    return run_program(argv, COMMAND_SECONDS)


def run_program(argv: Sequence[str], seconds: float) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a program that may hang, as nvidia-smi does with a broken driver.

    NOT_INSTALLED and TIMED_OUT are codes as well. A program in state D cannot be killed, and is left behind.
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
        program.communicate(timeout=KILL_WAIT_SECONDS)
    for pipe in (program.stdout, program.stderr):
        if pipe:
            pipe.close()


# The container engine: its labels, states and output.

CLUSTER_LABEL = "argus.verl.cluster"
NODE_LABEL, ROLE_LABEL = "argus.verl.node", "argus.verl.role"
# Labels with values from the creation of the container.
SPECIFICATION_LABEL = "argus.verl.specification"  # a hash of its arguments
SETTINGS_LABEL = "argus.verl.settings"  # the settings by name, as JSON
DERIVED_LABEL = "argus.verl.derived"  # the variables of NCCL and gloo that were derived then, as JSON
# The label of an image with a hash of what it was built from. images/cpu/build.py sets the same label.
INPUTS_LABEL = "argus.verl.inputs"
# The engines by their commands; NO_ENGINE is the name with EngineStatus.NONE, for nodes without containers.
DOCKER = "docker"
PODMAN = "podman"
NO_ENGINE = "none"
# The restart policy with which Podman restarts containers, after a boot by this systemd unit. The unit ignores
# containers with the policy unless-stopped.
RESTART, RESTART_UNIT = "always", "podman-restart.service"
ABSENT_MESSAGE = re.compile(r"no such (container|object|image)|image not known", re.I)


class EngineStatus(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """Whether the engine can be used; NONE if nodes of the machine run without containers."""

    OK = "ok"
    MISSING = "missing"
    DENIED = "denied"
    NO_ANSWER = "no_answer"
    FAILED = "failed"
    NONE = "none"


RUNNING = "running"
# The states in which a container holds its ports.
PORT_HOLDING_STATES = (RUNNING, "restarting", "paused")


@dataclass(frozen=True)
class Engine:
    """The container engine of a machine. Without status OK, only `error` is known besides the name."""

    # DOCKER, PODMAN or NO_ENGINE.
    name: str
    status: EngineStatus
    version: str | None = None
    # Why it cannot be used; None with status OK.
    error: str | None = None
    # Where it keeps images and containers.
    root_dir: str | None = None
    # Whether it can give NVIDIA GPUs to containers.
    nvidia: bool = False
    rootless: bool = False
    # Whether it can limit the number of processes of a container.
    limits_pids: bool = True
    lingers: bool = True  # whether containers outlive the user's connection
    boots: bool = True  # whether containers start again after a boot
    # Whether it may open /dev/net/tun, which container networks need without root.
    tun: bool = True


class EngineError(Exception):
    """A call to the engine failed, for a reason other than that the requested object does not exist."""


def error_message(out: str, err: str) -> str:
    """The message of a failed command, on one line; some commands print it on stdout."""
    return " ".join((err.strip() or out.strip()).split())


def _failed_engine(command: str, exit_code: int, text: str) -> Engine:
    text = text or "no message"
    lower = text.lower()
    if exit_code == NOT_INSTALLED:
        status, error = EngineStatus.MISSING, f'"{command}" is not installed: it is not on PATH'
    elif "permission denied" in lower:
        status, error = EngineStatus.DENIED, f'this user may not use "{command}": {text}'
    elif exit_code == TIMED_OUT or "cannot connect" in lower or "daemon running" in lower:
        status, error = EngineStatus.NO_ANSWER, f'the daemon of "{command}" does not answer: {text}'
    else:
        status, error = EngineStatus.FAILED, f'"{command} info" failed with exit code {exit_code}: {text}'
    return Engine(name=Path(command).name, status=status, error=error)


def parse_engine_info(command: str, exit_code: int, stdout: str, stderr: str) -> tuple[Engine, list[str]]:
    """Parse ``info --format '{{json .}}'`` of docker or podman: the engine, and the directories of its CDI files."""
    try:
        info = json.loads(stdout)
    except ValueError:
        return _failed_engine(command, exit_code, error_message(stdout, stderr)), []
    # If its daemon does not answer, Docker reports that in the JSON. Docker 20.10 then exits with 0, later ones fail.
    server_errors = " ".join(info.get("ServerErrors") or [])
    if exit_code or server_errors:
        return _failed_engine(command, exit_code, server_errors or error_message("", stderr)), []
    if "host" in info and "store" in info:
        # Also printed by the shim "docker" of the package podman-docker.
        return _podman_engine(info), ["/etc/cdi", "/var/run/cdi"]
    devices = [str(device.get("ID")) for device in info.get("DiscoveredDevices") or []]
    nvidia = "nvidia" in (info.get("Runtimes") or {}) or any(name.startswith("nvidia.com/gpu") for name in devices)
    version, root_dir = info["ServerVersion"], info["DockerRootDir"]
    # CDISpecDirs is null unless CDI is enabled in the daemon.
    cdi = list(info.get("CDISpecDirs") or [])
    return Engine(DOCKER, EngineStatus.OK, version, root_dir=root_dir, nvidia=nvidia), cdi


def _podman_engine(info: Mapping[str, Any]) -> Engine:
    host = info["host"]
    rootless = bool((host.get("security") or {}).get("rootless"))
    # Without root, limits need version 2 of cgroups, and the controller "pids", which systemd delegates to the user.
    limits_pids = not rootless or (
        host.get("cgroupVersion") == "v2" and "pids" in host.get("cgroupControllers", ["pids"])
    )
    return Engine(
        PODMAN,
        EngineStatus.OK,
        str(info["version"]["Version"]),
        root_dir=info["store"]["graphRoot"],
        rootless=rootless,
        limits_pids=limits_pids,
    )


@dataclass(frozen=True)
class Container:
    """A container, as the engine reports it."""

    id: str
    # Such as RUNNING, "exited" or "created".
    state: str
    # In the format of ISO 8601; None for a container that never ran.
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


def _with_digest_prefix(identifier: str) -> str:
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
            image_id=_with_digest_prefix(item["Image"]),
            labels=dict(item["Config"].get("Labels") or {}),
            host_ports=sorted({int(binding["HostPort"]) for binding in bindings if binding.get("HostPort")}),
            host_network=host.get("NetworkMode") == "host",
        )
    return containers


def parse_image(text: str) -> Image | None:
    """Parse the JSON of ``image inspect``; None if there is no such image."""
    for item in json.loads(text or "[]"):
        return Image(_with_digest_prefix(item["Id"]), dict((item.get("Config") or {}).get("Labels") or {}))
    return None


def reports_only_absence(err: str) -> bool:
    """Whether all errors on stderr say that a container or image does not exist."""
    # The client prints warnings on stderr as well, such as those about its own configuration.
    errors = [line for line in err.splitlines() if line.lower().startswith("error")]
    return bool(errors) and all(map(ABSENT_MESSAGE.search, errors))


def with_systemd(engine: Engine, root: Path, user: str, home: str) -> Engine:
    """Return the engine with `lingers` and `boots`: Podman has no daemon, so systemd ends and starts its containers."""
    if not (root / "run/systemd/system").is_dir():
        # Without systemd, the end of a session does not end them, and what starts them after a boot is unknown.
        return engine
    unit_dirs = [root / "etc/systemd/system"]
    if engine.rootless:
        unit_dirs = [root / home.lstrip("/") / ".config/systemd/user", root / "etc/systemd/user"]
    # Enabling the unit creates this link.
    boots = any((directory / "default.target.wants" / RESTART_UNIT).is_symlink() for directory in unit_dirs)
    lingers = not engine.rootless or (root / "var/lib/systemd/linger" / user).exists()
    return replace(engine, boots=boots and lingers, lingers=lingers)


def with_tun(engine: Engine, root: Path) -> Engine:
    """Return the engine with `tun`: without root, container networks need /dev/net/tun."""
    return replace(engine, tun=not engine.rootless or os.access(root / "dev/net/tun", os.R_OK | os.W_OK))
