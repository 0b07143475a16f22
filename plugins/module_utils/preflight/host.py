# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating system of a machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..argus.common.findings import NOTE, WARNING, Finding
from ..cluster.engine import EngineStatus
from .checks import Check, Context, Problem, Topic, differences
from .processes import Process, container_of, is_alive, limits_of, processes
from .reader import Reader

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


def read(reader: Reader) -> Host:
    found = list(processes(reader))
    waiting = {each.pid for each in found if each.state == "D"}
    if waiting:
        time.sleep(STUCK_SECONDS)
    daemon: int | str = next((each.pid for each in found if each.name == "dockerd"), "self")
    limits = limits_of(reader, daemon) or limits_of(reader, "self")
    total, free = _space(reader.at("/tmp"))  # noqa: S108
    return Host(
        kernel=reader.text("/proc/sys/kernel/osrelease"),
        open_files=limits.get("Max open files", ""),
        locked_memory=limits.get("Max locked memory", ""),
        tmp_total_bytes=total,
        tmp_free_bytes=free,
        governor=_governor(reader),
        stuck=tuple(each for each in processes(reader) if each.pid in waiting and each.state == "D") if waiting else (),
        ray=tuple(_with_container(reader, [each for each in found if each.name in RAY])),
        token=_stray_token(reader),
    )


def _space(path: Path) -> tuple[int, int]:
    try:
        space = os.statvfs(path)
    except OSError:
        return 0, 0
    return space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize


def _governor(reader: Reader) -> str:
    scaling = "/sys/devices/system/cpu/cpu0/cpufreq"
    # Drivers of the CPU's own power management call it so too when they only do not waste power.
    own = reader.text(f"{scaling}/scaling_driver") in ("intel_pstate", "amd-pstate-epp")
    return "" if own else reader.text(f"{scaling}/scaling_governor")


def _with_container(reader: Reader, found: Iterable[Process]) -> Iterator[Process]:
    """The processes with their containers, without those that have ended: nothing tells where they were."""
    for each in found:
        container = container_of(reader, each.pid)
        if container or is_alive(reader, each.pid):
            yield replace(each, container=container)


def _stray_token(reader: Reader) -> str:
    path = str(Path.home() / ".ray" / "auth_token")
    return path if os.path.lexists(reader.at(path)) else ""


def judge(host: Host, context: Context) -> Iterator[Problem]:
    contained = context.machine.engine.status != EngineStatus.NONE
    if host.stuck:
        names = ", ".join(f"{each.name} (pid {each.pid})" for each in host.stuck[:MAX_NAMES])
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
        names = ", ".join(f"{each.name} (pid {each.pid})" for each in bare[:MAX_NAMES])
        yield Problem(RAY_PROCESSES, f"Ray runs on the machine itself: {names}")
    if host.token:
        yield Problem(STRAY_TOKEN, f"there is a token in {host.token}", severity=NOTE if contained else WARNING)


def compare(answers: Mapping[str, Host], contexts: Mapping[str, Context]) -> Iterator[Finding]:
    yield from differences(KERNEL, "the kernel", {name: host.kernel for name, host in answers.items()})
    references = dict.fromkeys(each for context in contexts.values() for each in context.machine.images)
    for reference in references:
        images = {name: context.machine.images.get(reference) for name, context in contexts.items()}
        ids = {name: image.id.removeprefix("sha256:")[:12] for name, image in images.items() if image}
        yield from differences(IMAGE, f"the image {reference}", ids)


TOPIC: Topic[Host] = Topic("host", Host, CHECKS, read, judge, compare, columns=lambda host: {"kernel": host.kernel})
