# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks host.*, software.* and network.hostname, on one machine; and machine.image, on the controller."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Collection, Iterator, Mapping

from ..argus.common.findings import ERROR, NOTE, WARNING, Finding
from ..cluster.engine import EngineStatus
from ..cluster.machine import Machine
from ..cluster.state import ROCKSDB
from ..cluster.system import PACKAGES, RAY
from ..network.interfaces import GLOO_SOCKET_IFNAME, interface_with
from .checks import GIB, Expectation, Invariant, Problem, gib_text

# The least limit of open files that Ray recommends.
MIN_OPEN_FILES = 8192
# Ray writes nothing to a disk that is fuller than 95 %: one of 20 parts has to be free.
DISK_PARTS = 20
MAX_NAMES = 5
# Earlier releases of Ray ignore the token: everyone who reaches the head runs code on it.
RAY_WITH_TOKENS = (2, 52)
# In earlier releases, Ray's head cannot keep its state, the tables of the GCS, on a disk with RocksDB.
RAY_WITH_ROCKSDB = (2, 57)


def host_problems(machine: Machine, _expected: Expectation) -> Iterator[Problem]:
    host, has_containers = machine.system, machine.engine.status != EngineStatus.NONE
    if host.stuck:
        names = ", ".join(map(str, host.stuck[:MAX_NAMES]))
        yield Problem("host.stuck", f"processes that hang in the kernel: {len(host.stuck)}, such as {names}")
    # Ray's limit matters only if nodes are processes. In containers, Ray's /tmp is on the engine's disk.
    min_free_bytes = GIB if has_containers else max(GIB, host.tmp_total_bytes // DISK_PARTS)
    if host.tmp_total_bytes and host.tmp_free_bytes < min_free_bytes:
        free, total = gib_text(host.tmp_free_bytes), gib_text(host.tmp_total_bytes)
        yield Problem("host.tmp", f"{free} of {total} are free in /tmp, expected {gib_text(min_free_bytes)}")
    if host.open_files.isdigit() and int(host.open_files) < MIN_OPEN_FILES:
        yield Problem("host.nofile", f"at most {host.open_files} open files, expected at least {MIN_OPEN_FILES}")
    has_hca = any(port.state == "up" for port in machine.hcas)
    if not has_containers and has_hca and host.locked_memory not in ("", "unlimited"):
        yield Problem("host.memlock", f"at most {host.locked_memory} bytes of memory can be locked, expected unlimited")
    bare = [process for process in host.ray if not process.container]
    # Without containers, these are the nodes themselves.
    if has_containers and bare:
        yield Problem("host.ray", f"Ray runs on the machine itself: {', '.join(map(str, bare[:MAX_NAMES]))}")
    if host.token:
        severity = NOTE if has_containers else WARNING
        yield Problem("host.stray_token", f"there is a token in {host.token}", severity=severity)


def system_invariants(machine: Machine) -> Iterator[Invariant]:
    yield Invariant("host.kernel", "the kernel", machine.system.kernel)
    for reference, image in machine.images.items():
        yield Invariant("host.image", f"the image {reference}", image.id.removeprefix("sha256:")[:12] if image else "")


def is_at_least(ray_version: str, release: tuple[int, int]) -> bool:
    """Whether a version of Ray is a release or a later one. True for another form, as of a Ray built by hand."""
    match = re.match(r"(\d+)\.(\d+)", ray_version)
    return not match or (int(match[1]), int(match[2])) >= release


def software_problems(machine: Machine, expected: Expectation) -> Iterator[Problem]:
    software = machine.software
    if software is None:
        return
    if software.problem:
        yield Problem("software.python", f"{software.path} does not run: {software.problem}")
        return
    ray_version = software.packages.get(RAY, "")
    if not ray_version:
        yield Problem("software.python", f"Ray is not installed for {software.path}")
    elif not is_at_least(ray_version, RAY_WITH_TOKENS):
        problem = f"{software.path} has Ray {ray_version}, which has no tokens"
        yield Problem("software.python", problem, "install Ray 2.57 or later")  # with tokens, and RocksDB by default
    elif expected.head_storage == ROCKSDB and not is_at_least(ray_version, RAY_WITH_ROCKSDB):
        yield Problem(
            "software.python",
            f"{software.path} has Ray {ray_version}, whose head cannot keep its state on a disk",
            "install Ray 2.57 or later, or set cluster_head_storage: memory, with which jobs end with their head",
        )


def software_invariants(machine: Machine) -> Iterator[Invariant]:
    software = machine.software
    if software is None:
        return
    yield Invariant("software.ray", "Python", software.python)
    yield Invariant("software.ray", "Ray", software.packages.get(RAY, ""))
    for name, title in PACKAGES.items():
        # A head without these packages has empty values, which are left out.
        yield Invariant("software.packages", title, software.packages.get(name, ""))


def hostname_problems(machine: Machine, expected: Expectation) -> Iterator[Problem]:
    # Without an expected address, nodes are containers in a network of their own, with other names.
    loopbacks = [address for address in machine.system.addresses if ipaddress.ip_address(address).is_loopback]
    if loopbacks and expected.address:
        interface = interface_with(expected.address, machine.interfaces)
        name = expected.network_env.get(GLOO_SOCKET_IFNAME) or (interface.name if interface else "")
        effect = f"jobs get {GLOO_SOCKET_IFNAME}={name}" if name else "gloo fails with connectFullMesh"
        yield Problem(
            "network.hostname",
            f"its host name {machine.system.hostname} resolves to {loopbacks[0]}, a loopback: {effect}",
            f"give the name the machine's address in /etc/hosts instead of {loopbacks[0]}",
            WARNING if name else ERROR,
        )


# The check machine.image runs on the controller: which machines lack images, and where cluster_up gets them.


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
    is_archived: bool = False,
    on_controller: Collection[str] = (),
) -> Iterator[Finding]:
    """Yield a finding for each missing image, with where cluster_up gets it.

    builds: the images for which the inventory has a Dockerfile. is_archived: whether it names a file with images.
    on_controller: the images that the controller has.
    """
    for host, (image, engine) in missing.items():
        problem, severity = f"the image {image} is missing", WARNING
        copy = f"{engine} save {shlex.quote(image)} | ssh {host} {engine} load, on a machine that has it"
        if image in builds:
            remedy = f"cluster_up builds it on this controller, with its {engine}"
        elif is_archived and "@" not in image:
            remedy = "cluster_up loads it from the file of cluster_image_archive"
        elif image in on_controller:
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
