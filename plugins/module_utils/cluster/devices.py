# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of RDMA (InfiniBand and RoCE): which nodes get them, and whether their user can open them."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..argus.common.findings import ERROR, WARNING, Finding
from ..network.hcas import Hca

# All devices of RDMA lie in it; NCCL opens its uverbs* for data, and rdma_cm to connect.
INFINIBAND = "/dev/infiniband"
# Registered memory is locked, far more than the default limit of 64 KiB to 8 MiB.
UNLIMITED_MEMLOCK = "memlock:-1:-1"
# What root needs instead of the limit; a user without root gets it from Podman only.
LOCK_CAPABILITY = "IPC_LOCK"
AUTO, ALWAYS, NEVER = "auto", "true", "false"


@dataclass(frozen=True)
class DeviceFile:
    """A device of a machine, with the permissions of its file."""

    path: str
    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, root: Path, path: str) -> DeviceFile:
        """root: the directory that holds /dev."""
        status = (root / path.lstrip("/")).stat()
        return cls(path, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def rdma_given(asked: str, worker: bool, host_network: bool, hcas: Sequence[Hca], files: Sequence[DeviceFile]) -> bool:
    """Whether a node gets the devices of RDMA.

    A port that is down does not change it: a link that fails for a minute must not create the nodes again without RDMA.
    Heads do not train. In a container network, RoCE has no addresses.
    """
    if asked != AUTO:
        return asked == ALWAYS
    return worker and host_network and bool(hcas) and bool(files)


def openable(file: DeviceFile, uid: int, groups: Sequence[int]) -> bool:
    """Whether a user can read and write the device; the kernel takes the first class that fits, and no other."""
    if uid == 0:
        return True
    if file.uid == uid:
        return file.mode & 0o600 == 0o600
    wanted = 0o060 if file.gid in groups else 0o006
    return file.mode & wanted == wanted


def device_findings(
    host: str, asked: str, hcas: Sequence[Hca], files: Sequence[DeviceFile], user: str, groups: Sequence[str]
) -> Iterator[Finding]:
    """Find what keeps nodes from RDMA: NCCL then uses TCP, at a fraction of the speed.

    asked: "auto" or "true" for a machine with nodes that may get it, "false" for others.
    user: of the nodes, as uid:gid; groups: their further groups, as numbers or names.
    """
    if asked == NEVER or (asked == AUTO and not hcas):
        return
    if not files:
        what = f"{len(hcas)} HCA ports, but no {INFINIBAND}/uverbs*"
        missing = "nodes would not start" if asked == ALWAYS else "jobs would use TCP instead of RDMA"
        todo = "install rdma-core and load the driver (modprobe ib_uverbs), or set ray_node_rdma: false"
        yield Finding(host, f"{what}: {missing}", todo, ERROR if asked == ALWAYS else WARNING)
        return
    uid, gid = (int(number) for number in user.split(":"))
    members = [gid, *(int(group) for group in groups if group.isdigit())]
    closed = [file for file in files if not openable(file, uid, members)]
    # The number of a group by its name is known in the image only.
    if closed and all(group.isdigit() for group in groups):
        listed = ", ".join(f"{file.path} (mode {file.mode:o}, {file.uid}:{file.gid})" for file in closed)
        yield Finding(
            host,
            f"the nodes' user {user} cannot open {listed}: jobs would use TCP instead of RDMA",
            "install rdma-core, whose udev rule gives them mode 666, or add their group to ray_node_groups",
            WARNING,
        )
