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
from dataclasses import dataclass, replace
from pathlib import Path

from ..argus.common.findings import NOTE, WARNING
from ..cluster.engine import EngineStatus
from .checks import Check, Compared, Context, Expectation, Problem, Topic
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

KERNEL = Check("host.kernel", WARNING, "all machines run one kernel", "update and reboot the machines that differ")
IMAGE = Check(
    "host.image",
    WARNING,
    "an image is the same on all machines, and with it Python, Ray, torch, NCCL and verl",
    "pull or load the image again on the machines that differ, best by its digest",
)
STUCK = Check(
    "host.stuck",
    WARNING,
    "no process hangs in the kernel (state D)",
    "look for dead file servers and drivers (ps -eo pid,stat,wchan:30,cmd, dmesg); only a reboot ends such a process",
)
TMP = Check("host.tmp", WARNING, "free space in /tmp", "remove old files in /tmp, such as those of earlier Rays")
FILES = Check(
    "host.nofile",
    WARNING,
    "programs may open enough files",
    "raise the limit (LimitNOFILE of the engine's service, or nofile in /etc/security/limits.conf)",
)
MEMLOCK = Check(
    "host.memlock",
    WARNING,
    "memory can be locked, which InfiniBand needs, where Ray runs without containers",
    'set "* - memlock unlimited" in /etc/security/limits.conf, and log in again',
)
GOVERNOR = Check("host.governor", WARNING, "CPUs run at full speed", "cpupower frequency-set --governor performance")
RAY_PROCESSES = Check(
    "host.ray",
    WARNING,
    "no Ray runs outside of containers, where nodes are containers",
    "end it, if it is a leftover (ray stop as its user): it takes memory and may use the same ports",
)
STRAY_TOKEN = Check(
    "host.stray_token",
    WARNING,
    "no ~/.ray/auth_token of Ansible's user",
    "remove it, unless you need it: from 2.59 on it switches on Ray's tokens for every Ray of this user",
)
CHECKS = (KERNEL, IMAGE, STUCK, TMP, FILES, MEMLOCK, GOVERNOR, RAY_PROCESSES, STRAY_TOKEN)


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
        ray=tuple(replace(each, container=reader.container_of(each.pid)) for each in ray),
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
        yield Problem(STUCK, f"processes that hang in the kernel: {len(host.stuck)}, such as {names}")
    # Ray's own limit matters where Ray writes there; in containers, /tmp is on the engine's disk.
    least = GIB if contained else max(GIB, host.tmp_total_bytes // FREE_SHARE)
    if host.tmp_total_bytes and host.tmp_free_bytes < least:
        free, total = host.tmp_free_bytes / GIB, host.tmp_total_bytes / GIB
        yield Problem(TMP, f"{free:.1f} GiB of {total:.1f} GiB are free in /tmp, expected {least / GIB:.1f} GiB")
    if host.open_files.isdigit() and int(host.open_files) < OPEN_FILES:
        yield Problem(FILES, f"at most {host.open_files} open files, expected at least {OPEN_FILES}")
    has_hca = any(port.state == "up" for port in context.machine.hcas)
    if not contained and has_hca and host.locked_memory not in ("", "unlimited"):
        yield Problem(MEMLOCK, f"at most {host.locked_memory} bytes of memory can be locked, expected unlimited")
    if host.governor == "powersave":
        yield Problem(GOVERNOR, 'the CPUs have the governor "powersave"')
    bare = [each for each in host.ray if not each.container]
    # Without containers, these are the nodes themselves.
    if contained and bare:
        yield Problem(RAY_PROCESSES, f"Ray runs on the machine itself: {', '.join(map(str, bare[:MAX_NAMES]))}")
    if host.token:
        yield Problem(STRAY_TOKEN, f"there is a token in {host.token}", severity=NOTE if contained else WARNING)


def compared(host: Host, context: Context) -> Iterator[Compared]:
    yield Compared(KERNEL, "the kernel", host.kernel)
    for reference, image in context.machine.images.items():
        yield Compared(IMAGE, f"the image {reference}", image.id.removeprefix("sha256:")[:12] if image else "")


def columns(host: Host) -> Mapping[str, str]:
    return {"kernel": host.kernel}


TOPIC: Topic[Host] = Topic("host", CHECKS, read, judge, compared, columns)
