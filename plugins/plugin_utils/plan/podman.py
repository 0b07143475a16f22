# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ...module_utils.cluster.engine import PODMAN, RESTART, Engine

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
LOG = ("--log-driver=k8s-file", "--log-opt=max-size=50m")


def for_podman(arguments: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """Adapt arguments of docker_container to Podman, still by the names of docker_container."""
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
