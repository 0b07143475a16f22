# SPDX-License-Identifier: GPL-3.0-or-later
"""Device files of a machine, such as /dev/kfd, and who can open them."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DeviceFile:
    """A device file with its owner and permissions."""

    path: str
    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, root: Path, path: str) -> DeviceFile:
        """root: the directory that holds /dev."""
        status = (root / path.lstrip("/")).stat()
        return cls(path, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def is_openable(file: DeviceFile, uid: int, groups: Sequence[int]) -> bool:
    """Whether a user can read and write the device.

    As in the kernel, only the first class that fits counts: owner, group or others.
    """
    if uid == 0:
        return True
    if file.uid == uid:
        return file.mode & 0o600 == 0o600
    access = 0o060 if file.gid in groups else 0o006
    return file.mode & access == access


def groups_of(files: Sequence[DeviceFile]) -> tuple[str, ...]:
    """Return the groups that may open the devices, usually video and render.

    They are numbers, because a group may have another number in an image than on the machine.
    """
    return tuple(str(gid) for gid in sorted({file.gid for file in files if file.gid and file.mode & 0o060 == 0o060}))
