# SPDX-License-Identifier: GPL-3.0-or-later
"""The check machine.image: images that machines lack, and where cluster_up gets them. Runs on the controller."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

from ..argus.common.findings import ERROR, WARNING, Finding
from ..cluster.machine import Machine
from .checks import Problem


def missing_images(needed: Mapping[str, str], machines: Mapping[str, Machine]) -> dict[str, tuple[str, str]]:
    """Return the image that each machine lacks, with the machine's engine.

    needed: the image of each machine that gets nodes. machines: those that answered.
    """
    return {
        host: (image, machines[host].engine.name)
        for host, image in needed.items()
        # An engine that cannot be used has a finding of its own.
        if host in machines and image in machines[host].images and machines[host].images[image] is None
    }


def image_findings(
    missing: Mapping[str, tuple[str, str]],
    builds: Collection[str] = (),
    archive: bool = False,
    held: Collection[str] = (),
) -> Iterator[Finding]:
    """Yield a finding for each missing image, with where cluster_up gets it.

    builds: the images for which the inventory has a Dockerfile. archive: whether it names a file with images.
    held: the images that the controller has.
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
            # To Docker, such a name is one of its official images. None has Ray, so this one was built by hand.
            problem, severity = f"{problem}, and its name has no registry to pull it from", ERROR
            remedy = (
                f"build it there or on this controller (images/cpu/build.py NAME), or copy it ({copy}), or set "
                "cluster_image_builds or cluster_image_archive, or correct cluster_images"
            )
        yield Problem("machine.image", problem, remedy, severity).finding(host)
