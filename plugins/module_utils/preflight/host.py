# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks host.*: the operating system of one machine, and values that all machines have to share."""

from __future__ import annotations

from collections.abc import Iterator

from ..argus.common.findings import NOTE, WARNING
from ..cluster.engine import EngineStatus
from ..cluster.machine import Machine
from .checks import Invariant, Problem
from .expectation import GIB, Expectation, gib_text

# The least limit of open files that Ray recommends.
MIN_OPEN_FILES = 8192
# Ray writes nothing to a disk that is fuller than 95 %: one part of this number has to be free.
DISK_PARTS = 20
MAX_NAMES = 5


def host_problems(machine: Machine, _expected: Expectation) -> Iterator[Problem]:
    host, has_containers = machine.system, machine.engine.status != EngineStatus.NONE
    if host.stuck:
        names = ", ".join(map(str, host.stuck[:MAX_NAMES]))
        yield Problem("host.stuck", f"processes that hang in the kernel: {len(host.stuck)}, such as {names}")
    # Ray's limit matters only if nodes are processes. In containers, Ray's /tmp is on the engine's disk.
    least = GIB if has_containers else max(GIB, host.tmp_total_bytes // DISK_PARTS)
    if host.tmp_total_bytes and host.tmp_free_bytes < least:
        free, total = gib_text(host.tmp_free_bytes), gib_text(host.tmp_total_bytes)
        yield Problem("host.tmp", f"{free} of {total} are free in /tmp, expected {gib_text(least)}")
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
        yield Problem(
            "host.stray_token", f"there is a token in {host.token}", severity=NOTE if has_containers else WARNING
        )


def system_invariants(machine: Machine) -> Iterator[Invariant]:
    yield Invariant("host.kernel", "the kernel", machine.system.kernel)
    for reference, image in machine.images.items():
        yield Invariant("host.image", f"the image {reference}", image.id.removeprefix("sha256:")[:12] if image else "")
