# SPDX-License-Identifier: GPL-3.0-or-later
"""Podman: the command `podman run` for the arguments of docker_container.

Podman's socket would need a service for each user, and knows no CDI devices before Podman 5.4. The environment travels
on standard input, as other users of a machine see command lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ...module_utils.cluster.engine import PODMAN, RESTART, Engine

# By argument of docker_container, the option of podman with one value, and with a list. podman_run() has the others.
TEXT_OPTIONS = MappingProxyType(
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
LIST_OPTIONS = MappingProxyType(
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
# The user namespace of rootless Podman in which files of the user belong to the same user in the container.
KEEP_ID = "keep-id"
# SELinux must not give the shared root another label than its mount or its other users need.
NO_SELINUX_LABEL = "label=disable"
LOG_OPTIONS = ("--log-driver=k8s-file", "--log-opt=max-size=50m")


def for_podman(arguments: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """The arguments with values for Podman, still by the names of docker_container."""
    changed = {**arguments, "security_opts": [*arguments["security_opts"], NO_SELINUX_LABEL]}
    requests = changed.pop("device_requests", [])
    if gpus := [f"nvidia.com/gpu={number}" for request in requests for number in request["device_ids"]]:
        changed["devices"] = [*changed.get("devices", []), *gpus]
    if engine.rootless:
        changed["userns_mode"] = KEEP_ID
    if not engine.limits_pids:
        # Podman would refuse to start a container with a limit that it cannot set.
        changed.pop("pids_limit")
    return changed


def podman_run(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ansible.builtin.command that start a container: `argv` and `stdin`."""
    argv = [PODMAN, "run", "--detach", "--pull=never", "--init", f"--restart={RESTART}", *LOG_OPTIONS]
    argv += [f"--{option}={arguments[name]}" for name, option in TEXT_OPTIONS.items() if name in arguments]
    argv += [f"--{option}={value}" for name, option in LIST_OPTIONS.items() for value in arguments.get(name, [])]
    # NAME:SOFT:HARD or NAME:BOTH becomes NAME=SOFT:HARD or NAME=BOTH.
    argv += [f"--ulimit={limit.replace(':', '=', 1)}" for limit in arguments["ulimits"]]
    argv += [f"--network={network['name']}" for network in arguments.get("networks", [])]
    argv += [f"--label={name}={value}" for name, value in arguments["labels"].items()]
    argv += [f"--mount={','.join(_mount_parts(mount))}" for mount in arguments["mounts"]]
    if arguments["read_only"]:
        # Podman's own tmpfs would cover /tmp, which is a volume, and /run, which has the token.
        argv += ["--read-only", "--read-only-tmpfs=false"]
    argv += ["--env-file=/dev/stdin", arguments["image"], *arguments["command"]]
    return {"argv": argv, "stdin": "".join(f"{name}={value}\n" for name, value in arguments["env"].items())}


def _mount_parts(mount: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"type={mount['type']}", f"source={mount['source']}", f"target={mount['target']}")
    if mount.get("read_only"):
        yield "readonly"
