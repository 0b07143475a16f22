# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the operating system of a machine."""

from __future__ import annotations

from collections.abc import Iterator

from ..argus.common.findings import NOTE, WARNING
from ..cluster.engine import EngineStatus
from ..cluster.machine import Machine
from .checks import Compared, Expectation, Problem

GIB = 1 << 30
# What Ray itself recommends at least.
OPEN_FILES = 8192
# Ray writes nothing to a disk that is fuller than 95 %.
FREE_SHARE = 20
MAX_NAMES = 5


def host_problems(machine: Machine, _expected: Expectation) -> Iterator[Problem]:
    host, contained = machine.system, machine.engine.status != EngineStatus.NONE
    if host.stuck:
        names = ", ".join(map(str, host.stuck[:MAX_NAMES]))
        yield Problem("host.stuck", f"processes that hang in the kernel: {len(host.stuck)}, such as {names}")
    # Ray's own limit matters where Ray writes there; in containers, /tmp is on the engine's disk.
    least = GIB if contained else max(GIB, host.tmp_total_bytes // FREE_SHARE)
    if host.tmp_total_bytes and host.tmp_free_bytes < least:
        free, total = host.tmp_free_bytes / GIB, host.tmp_total_bytes / GIB
        yield Problem("host.tmp", f"{free:.1f} GiB of {total:.1f} GiB are free in /tmp, expected {least / GIB:.1f} GiB")
    if host.open_files.isdigit() and int(host.open_files) < OPEN_FILES:
        yield Problem("host.nofile", f"at most {host.open_files} open files, expected at least {OPEN_FILES}")
    has_hca = any(port.state == "up" for port in machine.hcas)
    if not contained and has_hca and host.locked_memory not in ("", "unlimited"):
        yield Problem("host.memlock", f"at most {host.locked_memory} bytes of memory can be locked, expected unlimited")
    if host.governor == "powersave":
        yield Problem("host.governor", 'the CPUs have the governor "powersave"')
    bare = [each for each in host.ray if not each.container]
    # Without containers, these are the nodes themselves.
    if contained and bare:
        yield Problem("host.ray", f"Ray runs on the machine itself: {', '.join(map(str, bare[:MAX_NAMES]))}")
    if host.token:
        yield Problem("host.stray_token", f"there is a token in {host.token}", severity=NOTE if contained else WARNING)


def compared(machine: Machine) -> Iterator[Compared]:
    yield Compared("host.kernel", "the kernel", machine.system.kernel)
    for reference, image in machine.images.items():
        yield Compared("host.image", f"the image {reference}", image.id.removeprefix("sha256:")[:12] if image else "")
