# SPDX-License-Identifier: GPL-3.0-or-later
"""The images of nodes: what they are built from on the controller, and which image each machine needs."""

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

# Directories of a build context that do not change the image.
IGNORED_DIRECTORIES = {".git", "__pycache__"}


class BuildError(Exception):
    """An image cannot be built; the message says what is wrong, where, and what to do."""


def image_builds(
    builds: Mapping[str, Mapping[str, Any]], images: Mapping[str, str], inventory_dir: str
) -> dict[str, dict[str, Any]]:
    """What the role ray_image needs to build images, by their names. Raises BuildError.

    builds, images: the variables cluster_image_builds and cluster_images. inventory_dir: where relative contexts begin.
    The result has `inputs`, the hash of what an image is built from, and `arguments` of the engine's command build.
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


def inputs_hash(context: Path, dockerfile: str, build_args: Sequence[str]) -> str:
    """The hash of all that goes into an image, except its base image. Raises BuildError."""
    if not (context / dockerfile).is_file():
        raise BuildError(
            f"{context / dockerfile} does not exist on this controller: correct context or dockerfile in "
            "cluster_image_builds"
        )
    digest = hashlib.sha256(json.dumps([dockerfile, *sorted(build_args)]).encode())
    try:
        for path in sorted(context.rglob("*")):
            name = path.relative_to(context)
            if IGNORED_DIRECTORIES.isdisjoint(name.parts) and (path.is_symlink() or path.is_file()):
                content, kind = _content_and_kind(path)
                digest.update(b"\n%s\0%s\0%s" % (os.fsencode(name), kind, hashlib.sha256(content).digest()))
    except OSError as error:
        raise BuildError(f"{error.filename} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:32]


def _content_and_kind(path: Path) -> tuple[bytes, bytes]:
    """What a file contains, and its kind. Other permissions and its times depend on the checkout, and are left out."""
    if path.is_symlink():
        return os.fsencode(path.readlink()), b"link"
    return path.read_bytes(), b"program" if path.stat().st_mode & 0o100 else b"file"


def has_image(engine: str, image: str) -> bool:
    """Whether the engine of this controller has an image; False without an engine."""
    try:
        return not subprocess.run([engine, "image", "inspect", image], capture_output=True, check=False).returncode
    except OSError:
        return False


def needed_images(
    hosts: Sequence[str], hostvars: HostVars, groups: Groups, images: Mapping[str, str], machines: Mapping[str, Machine]
) -> dict[str, str]:
    """The image that the nodes of each machine need, by the machine's name.

    hosts: those that represent machines. machines: those that were probed, by their names.
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
        # Without an image, the plan of the node fails with a message of its own.
        if image:
            needed[machine_of[node]] = image
    return needed
