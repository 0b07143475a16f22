# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is different about the container of a node with Podman, and the command that starts it.

Podman's own command, rather than its socket: that is a service which has to run beside it for each user, and it knows
no CDI devices before Podman 5.4. The environment is passed on stdin: other users of a machine see command lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .engine import PODMAN, Engine

# The arguments of docker_container, by kind. Those that are not here are in podman_run().
TEXTS = MappingProxyType(
    {
        "name": "name",
        "user": "user",
        "working_dir": "workdir",
        "pids_limit": "pids-limit",
        "shm_size": "shm-size",
        "network_mode": "network",
        "userns_mode": "userns",
        "hostname": "hostname",
    }
)
LISTS = MappingProxyType(
    {
        "volumes": "volume",
        "security_opts": "security-opt",
        "cap_drop": "cap-drop",
        "capabilities": "cap-add",
        "devices": "device",
        "groups": "group-add",
        "published_ports": "publish",
    }
)
# For a user without root, Podman gives files of this user to the same user in the container, and to no other.
KEEP_ID = "keep-id"
# Files of the shared root have the label that its mount or its other users need: they are not labelled again.
NO_SELINUX_LABEL = "label=disable"
# Podman starts these again, and podman-restart.service does so after a boot. Docker's unless-stopped would not be.
RESTART, RESTART_UNIT = "always", "podman-restart.service"
LOG = ("--log-driver=k8s-file", "--log-opt=max-size=50m")


def for_podman(arguments: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """Change what has another meaning with Podman; the result is still in the words of docker_container."""
    changed = {**arguments, "security_opts": [*arguments["security_opts"], NO_SELINUX_LABEL]}
    requests = changed.pop("device_requests", [])
    if gpus := [f"nvidia.com/gpu={number}" for request in requests for number in request["device_ids"]]:
        changed["devices"] = [*changed.get("devices", []), *gpus]
    if engine.rootless:
        changed["userns_mode"] = KEEP_ID
    if not engine.limits_pids:
        # Where it cannot be limited, Podman refuses to start the container.
        changed.pop("pids_limit")
    return changed


def with_systemd(engine: Engine, root: Path, user: str, home: str) -> Engine:
    """Add what systemd does with the containers of Podman, which has no daemon that could start them.

    root: the directory that holds /run, /etc and /var. user, home: of Ansible's user on the machine.
    """
    if not (root / "run/systemd/system").is_dir():
        # Nothing ends them with a session, and what starts them after a boot is not known.
        return engine
    wants = [root / "etc/systemd/system"]
    if engine.rootless:
        wants = [root / home.lstrip("/") / ".config/systemd/user", root / "etc/systemd/user"]
    # Without following it: the unit itself is elsewhere.
    boots = any((directory / "default.target.wants" / RESTART_UNIT).is_symlink() for directory in wants)
    lingers = not engine.rootless or (root / "var/lib/systemd/linger" / user).exists()
    return replace(engine, boots=boots and lingers, lingers=lingers)


def with_tun(engine: Engine, root: Path) -> Engine:
    """Add whether the networks of containers without root can be made; root makes its own without this device.

    root: the directory that holds /dev.
    """
    return replace(engine, tun=not engine.rootless or os.access(root / "dev/net/tun", os.R_OK | os.W_OK))


def podman_run(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The command that starts a container with these arguments of docker_container, and its input."""
    argv = [PODMAN, "run", "--detach", "--pull=never", "--init", f"--restart={RESTART}", *LOG]
    argv += [f"--{option}={arguments[name]}" for name, option in TEXTS.items() if name in arguments]
    argv += [f"--{option}={value}" for name, option in LISTS.items() for value in arguments.get(name, [])]
    # NAME:SOFT:HARD or NAME:BOTH.
    argv += [f"--ulimit={limit.replace(':', '=', 1)}" for limit in arguments["ulimits"]]
    argv += [f"--network={network['name']}" for network in arguments.get("networks", [])]
    argv += [f"--label={name}={value}" for name, value in arguments["labels"].items()]
    argv += [f"--mount={','.join(_mount(mount))}" for mount in arguments["mounts"]]
    if arguments["read_only"]:
        # Without Podman's own tmpfs: /tmp is a volume, and /run holds the token.
        argv += ["--read-only", "--read-only-tmpfs=false"]
    argv += ["--env-file=/dev/stdin", arguments["image"], *arguments["command"]]
    return {"argv": argv, "stdin": "".join(f"{name}={value}\n" for name, value in arguments["env"].items())}


def _mount(mount: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"type={mount['type']}", f"source={mount['source']}", f"target={mount['target']}")
    if mount.get("read_only"):
        yield "readonly"
