# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.plugin_utils.inventory import inventory, nodes
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import Groups, HostVars

NOT_INPUTS = {".git", "__pycache__"}


class BuildError(Exception):
    """An image cannot be built; the message says what is wrong, where, and what to do."""


def image_builds(
    builds: Mapping[str, Mapping[str, Any]], images: Mapping[str, str], inventory_dir: str
) -> dict[str, dict[str, Any]]:
    """The entries of cluster_image_builds by the names of their images, for the role ray_image.

    inputs: the hash of what an image is built from. arguments: of the engine's command build.
    """
    entries = {}
    for kind, build in builds.items():
        if kind not in images:
            raise BuildError(f"cluster_image_builds.{kind} has no image: add its name to cluster_images")
        context = Path(inventory_dir, Path(str(build["context"])).expanduser())
        dockerfile = str(build.get("dockerfile") or "Dockerfile")
        values = [f"{name}={value}" for name, value in (build.get("args") or {}).items()]
        options = [word for value in values for word in ("--build-arg", value)]
        entries[images[kind]] = {
            "inputs": inputs_hash(context, dockerfile, values),
            "push": boolean(build.get("push") or False),
            "arguments": ["--file", str(context / dockerfile), *options, str(context)],
        }
    return entries


def inputs_hash(context: Path, dockerfile: str, values: Sequence[str]) -> str:
    """A hash of all that goes into an image, but not of the image that it is built on."""
    if not (context / dockerfile).is_file():
        raise BuildError(
            f"{context / dockerfile} does not exist on this controller: correct context or dockerfile in "
            "cluster_image_builds"
        )
    digest = hashlib.sha256(json.dumps([dockerfile, *sorted(values)]).encode())
    try:
        for path in sorted(context.rglob("*")):
            name = path.relative_to(context)
            if NOT_INPUTS.isdisjoint(name.parts) and (path.is_symlink() or path.is_file()):
                content, kind = _content(path)
                digest.update(b"\n%s\0%s\0%s" % (os.fsencode(name), kind, hashlib.sha256(content).digest()))
    except OSError as error:
        raise BuildError(f"{error.filename} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:32]


def _content(path: Path) -> tuple[bytes, bytes]:
    """What a file holds, and its kind. The user's umask and the time of a checkout are no inputs."""
    if path.is_symlink():
        return os.fsencode(path.readlink()), b"link"
    return path.read_bytes(), b"program" if path.stat().st_mode & 0o100 else b"file"


def has_image(engine: str, image: str) -> bool:
    """Whether this controller has an image; without an engine, it has none."""
    try:
        return not subprocess.run([engine, "image", "inspect", image], capture_output=True, check=False).returncode
    except OSError:
        return False


def needed_images(
    hosts: Sequence[str], hostvars: HostVars, groups: Groups, images: Mapping[str, str], machines: Mapping[str, Machine]
) -> dict[str, str]:
    """The image of the nodes of each machine, by the machine's name.

    hosts: those that represent machines. machines: the probed ones, by their names.
    """
    variables = {node: hostvars[node] for node in inventory.cluster_nodes(groups)}
    machine_of = {
        node: inventory.machine_name(host, variables[host])
        for host, placed in inventory.placement(variables, variables, hosts).items()
        for node in placed
    }
    with_workers = {machine_of[worker] for worker in groups.get(inventory.WORKERS, []) if worker in machine_of}
    probed = [machines[name] for name in with_workers if name in machines]
    needed = {}
    for node, settings in variables.items():
        image = images.get(nodes.accelerator_of(settings.get("ray_node_accelerator") or "auto", probed))
        # Without one, the plan of the node fails with a message of its own.
        if image:
            needed[machine_of[node]] = image
    return needed
