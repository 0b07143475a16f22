# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images: which machines lack one, where each of them gets it, and whether the images of a cluster fit each other."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..argus.common.findings import ERROR, WARNING, Finding
from .engine import Image
from .machine import Machine

# The hash of what an image was built from, as images/cpu/build.py also sets it.
INPUTS_LABEL = "argus.verl.inputs"
# Earlier releases of Ray ignore the token: everyone who reaches the head runs code on it.
RAY_WITH_TOKENS = (2, 52)
OLDEST_RAY = ".".join(map(str, RAY_WITH_TOKENS))


@dataclass(frozen=True)
class Sources:
    """Where images come from besides registries.

    builds: the hash of the inputs of each image that the inventory has a Dockerfile for. pushed: those of them that
    their builder pushes. archive: whether the inventory names a file with images.
    """

    builds: Mapping[str, str] = field(default_factory=dict)
    pushed: Collection[str] = ()
    archive: bool = False

    def is_current(self, reference: str, image: Image | None) -> bool:
        """Whether an image is the one that nodes shall have."""
        wanted = self.builds.get(reference)
        return image is not None and wanted in (None, image.labels.get(INPUTS_LABEL))

    def is_pulled(self, reference: str) -> bool:
        """Whether a registry is asked: for one of the names without one, only Docker's own would be."""
        return "/" in reference and (reference not in self.builds or reference in self.pushed)


def is_copied(reference: str) -> bool:
    """Whether an image can be copied between machines: a saved image has names, and not the digests of a registry."""
    return "@" not in reference


def holders(reference: str, machines: Mapping[str, Machine], sources: Sources) -> list[str]:
    """The machines that have an image as nodes shall have it."""
    return [host for host, there in machines.items() if sources.is_current(reference, there.images.get(reference))]


def image_findings(
    needed: Mapping[str, str], machines: Mapping[str, Machine], sources: Sources | None = None
) -> Iterator[Finding]:
    """Find images that a machine will need and lacks, with the command that brings them there.

    needed: the image of the nodes of each machine with nodes.
    """
    sources = sources or Sources()
    for host, image in needed.items():
        machine = machines.get(host)
        # An engine that cannot be used has a finding of its own.
        if machine is None or image not in machine.images or machine.images[image] is not None:
            continue
        if image in sources.builds or (sources.archive and is_copied(image)):
            continue
        there = holders(image, machines, sources) if is_copied(image) else []
        what = f"the image {image} is missing"
        engine = machine.engine.name
        copy = f"{engine} save {shlex.quote(image)} | ssh {host} {engine} load, on a machine that has it"
        if there:
            pulls = "pulls it, or " if sources.is_pulled(image) else ""
            todo = f"cluster_up {pulls}copies it from {there[0]} through the shared root"
            yield Finding(host, what, todo, WARNING)
        elif sources.is_pulled(image):
            todo = f"cluster_up pulls it; where {host} does not reach its registry: {copy}"
            yield Finding(host, what, todo, WARNING)
        else:
            # Such a name is one of Docker's own images, of which none has Ray: this one was built by hand.
            todo = (
                f"build it there (images/cpu/build.py NAME), or copy it ({copy}), or set cluster_image_builds or "
                "cluster_image_archive, or correct cluster_images"
            )
            yield Finding(host, f"{what}, and its name has no registry to pull it from", todo, ERROR)


@dataclass(frozen=True)
class Supply:
    """Where machines get the images that they lack, before any is copied.

    build: on the head's machine. pull, archive: by machine.
    """

    build: Sequence[str]
    pull: Mapping[str, Sequence[str]]
    archive: Mapping[str, Sequence[str]]


def supply(needs: Mapping[str, Sequence[str]], machines: Mapping[str, Machine], head: str, sources: Sources) -> Supply:
    """Decide where images come from.

    needs: the images that each machine lacks, or has from other inputs. An image that a machine of the cluster has is
    not built again.
    """
    wanted = list(dict.fromkeys(image for images in needs.values() for image in images))
    build = [image for image in wanted if image in sources.builds and not holders(image, machines, sources)]
    pull = {
        host: [image for image in images if sources.is_pulled(image) and not (host == head and image in build)]
        for host, images in needs.items()
    }
    archive = {
        host: [image for image in images if sources.archive and image not in sources.builds and is_copied(image)]
        for host, images in needs.items()
    }
    # A site with an archive has no registry.
    pull = {host: [image for image in images if image not in archive[host]] for host, images in pull.items()}
    return Supply(build, {h: i for h, i in pull.items() if i}, {h: i for h, i in archive.items() if i})


@dataclass(frozen=True)
class Copy:
    """An image that one machine saves, and others load."""

    image: str
    source: str
    targets: Sequence[str]


def copies(needs: Mapping[str, Sequence[str]], there: Mapping[str, Sequence[str]]) -> list[Copy]:
    """Decide which machines copy an image, after it was built and pulled.

    there: the machines that have each image by now.
    """
    found = []
    for image in dict.fromkeys(image for images in needs.values() for image in images):
        sources = there.get(image, ())
        targets = [host for host, images in needs.items() if image in images and host not in sources]
        if sources and targets and is_copied(image):
            found.append(Copy(image, sources[0], targets))
    return found


def has_tokens(ray: str) -> bool:
    """Whether a release of Ray has tokens. One that was built by hand may have another form, and passes."""
    found = re.match(r"(\d+)\.(\d+)", ray)
    return not found or (int(found[1]), int(found[2])) >= RAY_WITH_TOKENS


@dataclass(frozen=True)
class Runtime:
    """What an image answers about itself. problem: why there is no answer."""

    image: str
    python: str = ""
    ray: str = ""
    problem: str = ""

    @classmethod
    def of(cls, image: str, code: int, out: str, err: str) -> Runtime:
        try:
            answer = json.loads(out.strip().splitlines()[-1])
            return cls(image, str(answer["python"]), str(answer["ray"]))
        except (ValueError, LookupError, TypeError):
            said = (err.strip() or out.strip()).splitlines()[-1:] or [f"exit code {code}"]
            return cls(image, problem=f"its python3 does not run: {said[0]}")

    @property
    def incompatible(self) -> str:
        """Why no node can run from the image, or ""."""
        if self.problem:
            return self.problem
        if not self.ray:
            return "Ray is not installed for its python3"
        if not has_tokens(self.ray):
            return f"it has Ray {self.ray}, which has no tokens: use an image with Ray {OLDEST_RAY} or later"
        return ""


def runtime_problems(answers: Mapping[str, Sequence[Runtime]], head: str, name: str = "") -> dict[str, str]:
    """Why nodes of a machine cannot start, by machine: Ray's nodes refuse a head with another Ray or Python.

    answers: by machine. head: the machine of the head, the first answer of which is that of the head's own image. name:
    of this machine for people, if another.
    """
    reference = next(iter(answers.get(head, ())), None)
    found: dict[str, str] = {}
    for host, runtimes in answers.items():
        for runtime in runtimes:
            problem = runtime.incompatible or _difference(runtime, reference, name or head)
            if problem:
                found.setdefault(host, f"the image {runtime.image}: {problem}")
    return found


def _difference(runtime: Runtime, head: Runtime | None, machine: str) -> str:
    if head is None or head.incompatible:
        return ""
    pairs = [("Python", runtime.python, head.python), ("Ray", runtime.ray, head.ray)]
    differs = [f"{name} {own}, and the head's image on {machine} {its}" for name, own, its in pairs if own != its]
    return f"it has {'; '.join(differs)}: Ray needs the same on all nodes" if differs else ""
