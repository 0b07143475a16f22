# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating system of a machine."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..argus.common.findings import NOTE, WARNING
from ..cluster.engine import EngineStatus
from .checks import Compared, Context, Expectation, Problem, Topic
from .reading import Process, Reader

GIB = 1 << 30
# What Ray itself recommends at least.
OPEN_FILES = 8192
# Ray writes nothing to a disk that is fuller than 95 %.
FREE_SHARE = 20
# A process that waits for a disk is in state D for moments.
STUCK_SECONDS = 0.5
RAY = ("raylet", "gcs_server")
MAX_NAMES = 5


@dataclass(frozen=True)
class Host:
    """The operating system, as the machine answers.

    open_files, locked_memory: hard limits, of the engine's daemon if there is one; "unlimited", a number or empty.
    tmp_total_bytes, tmp_free_bytes: 0 if not known.
    stuck: processes that were in state D for a while. ray: those of Ray, in any container.
    """

    kernel: str
    open_files: str = ""
    locked_memory: str = ""
    tmp_total_bytes: int = 0
    tmp_free_bytes: int = 0
    governor: str = ""
    stuck: tuple[Process, ...] = ()
    ray: tuple[Process, ...] = ()
    token: str = ""


def read(reader: Reader, _expected: Expectation = Expectation()) -> Host:  # noqa: B008 - it is frozen
    processes = list(reader.processes())
    waiting = {each.pid for each in processes if each.state == "D"}
    if waiting:
        time.sleep(STUCK_SECONDS)
    stuck = [each for each in reader.processes() if each.pid in waiting and each.state == "D"] if waiting else []
    daemon = next((each.pid for each in processes if each.name == "dockerd"), "self")
    limits = _limits(reader, daemon) or _limits(reader, "self")
    total, free = _space(reader.at("/tmp"))  # noqa: S108
    token = str(Path.home() / ".ray" / "auth_token")
    # A process that has ended has no container any more.
    ray = [each for each in processes if each.name in RAY and each.state not in "ZX"]
    return Host(
        kernel=reader.text("/proc/sys/kernel/osrelease"),
        open_files=limits.get("Max open files", ""),
        locked_memory=limits.get("Max locked memory", ""),
        tmp_total_bytes=total,
        tmp_free_bytes=free,
        governor=_governor(reader),
        stuck=tuple(stuck),
        ray=tuple(map(reader.placed, ray)),
        token=token if os.path.lexists(reader.at(token)) else "",
    )


def _space(path: Path) -> tuple[int, int]:
    try:
        space = shutil.disk_usage(path)
    except OSError:
        return 0, 0
    return space.total, space.free


def _limits(reader: Reader, pid: int | str) -> dict[str, str]:
    """The hard limits of a process by name, such as "Max open files"; "unlimited", or a number."""
    return dict(re.findall(r"^(Max [a-z ]+?) {2,}\S+ +(\S+)", reader.text(f"/proc/{pid}/limits"), re.M))


def _governor(reader: Reader) -> str:
    scaling = "/sys/devices/system/cpu/cpu0/cpufreq"
    # Drivers of the CPU's own power management call it so too when they only do not waste power.
    own = reader.text(f"{scaling}/scaling_driver") in ("intel_pstate", "amd-pstate-epp")
    return "" if own else reader.text(f"{scaling}/scaling_governor")


def judge(host: Host, context: Context) -> Iterator[Problem]:
    contained = context.machine.engine.status != EngineStatus.NONE
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
    has_hca = any(port.state == "up" for port in context.machine.hcas)
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


def compared(host: Host, context: Context) -> Iterator[Compared]:
    yield Compared("host.kernel", "the kernel", host.kernel)
    for reference, image in context.machine.images.items():
        yield Compared("host.image", f"the image {reference}", image.id.removeprefix("sha256:")[:12] if image else "")


def columns(host: Host) -> Mapping[str, str]:
    return {"kernel": host.kernel}


TOPIC: Topic[Host] = Topic("host", read, judge, compared, columns)
