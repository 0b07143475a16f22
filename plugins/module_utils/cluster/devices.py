# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of RDMA (InfiniBand and RoCE): which nodes get them, and whether their user can open them."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
