# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of nodes: machines that lack one, and releases of Ray that may not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ..argus.common.findings import ERROR, WARNING, Finding
from .machine import Machine

# The hash of what an image was built from, as images/cpu/build.py also sets it.
INPUTS_LABEL = "argus.verl.inputs"
# Earlier releases of Ray ignore the token: everyone who reaches the head runs code on it.
RAY_WITH_TOKENS = (2, 52)
OLDEST_RAY = ".".join(map(str, RAY_WITH_TOKENS))


class MissingImage(NamedTuple):
    """An image that a machine will need and lacks, and the machine's engine."""

    name: str
    engine: str


def missing_images(needed: Mapping[str, str], machines: Mapping[str, Machine]) -> dict[str, MissingImage]:
    """Find images that machines lack. needed: the image of the nodes of each machine with nodes."""
    return {
        host: MissingImage(image, machines[host].engine.name)
        for host, image in needed.items()
        # An engine that cannot be used has a finding of its own.
        if host in machines and machines[host].images.get(image, MissingImage) is None
    }


def image_findings(
    missing: Mapping[str, MissingImage], builds: Collection[str] = (), archive: bool = False, held: Collection[str] = ()
) -> Iterator[Finding]:
    """Say where cluster_up gets the images that machines lack.

    builds: the images that the inventory has a Dockerfile for. archive: whether it names a file with images. held: the
    images that the controller has.
    """
    for host, (image, engine) in missing.items():
        problem, severity = f"the image {image} is missing", WARNING
        copy = f"{engine} save {shlex.quote(image)} | ssh {host} {engine} load, on a machine that has it"
        if image in builds:
            remedy = f"cluster_up builds it on this controller, with its {engine}"
        elif archive and "@" not in image:
            remedy = "cluster_up loads it from the file of cluster_image_archive"
        elif image in held:
            remedy = "cluster_up copies it from this controller"
        elif "/" in image:
            remedy = f"cluster_up pulls it; where {host} does not reach its registry: {copy}"
        else:
            # Such a name is one of Docker's own images, of which none has Ray: this one was built by hand.
            problem, severity = f"{problem}, and its name has no registry to pull it from", ERROR
            remedy = (
                f"build it there or on this controller (images/cpu/build.py NAME), or copy it ({copy}), or set "
                "cluster_image_builds or cluster_image_archive, or correct cluster_images"
            )
        yield Finding(host, problem, remedy, severity)


def has_tokens(ray: str) -> bool:
    """Whether a release of Ray has tokens. One that was built by hand may have another form, and passes."""
    found = re.match(r"(\d+)\.(\d+)", ray)
    return not found or (int(found[1]), int(found[2])) >= RAY_WITH_TOKENS
