# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mount of the shared root, compared between all machines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..argus.common.findings import Finding
from ..cluster.hardware import PathState
from .checks import Compared, Context, Expectation, Problem, Topic
from .reading import Reader

# File systems of one machine alone. A bind mount of one of them may still be shared by containers.
LOCAL = ("btrfs", "ext2", "ext3", "ext4", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
# Options that name the client, and those that the kernel adds without a meaning for us.
OWN = ("addr=", "clientaddr=", "mountaddr=", "port=", "mountport=", "seclabel", "relatime")


@dataclass(frozen=True)
class Access:
    """What this process may do at the top of the shared root.

    owner: its user. is_root: whether this process is root. writable: whether the server lets it create files there.
    """

    owner: int = 0
    is_root: bool = False
    writable: bool = True


def read(reader: Reader, expected: Expectation) -> Access:
    if not expected.shared_root:
        return Access()
    try:
        # Nothing is opened or created: the path itself is the operator's.
        owner = reader.at(expected.shared_root).stat().st_uid
    except OSError:
        # The basic answer says why.
        return Access()
    return Access(owner, os.geteuid() == 0, os.access(reader.at(expected.shared_root), os.W_OK | os.X_OK))


def judge(access: Access, _context: Context) -> Iterator[Problem]:
    if access.is_root and access.owner == 0 and not access.writable:
        yield Problem(
            "storage.squash", "the shared root belongs to root, and root cannot write to it (root_squash or read-only)"
        )


def compared(_access: Access, context: Context) -> Iterable[Compared]:
    mount = mount_of_root(context)
    if mount is None:
        return ()
    options = ",".join(sorted(option for option in mount.options if not option.startswith(OWN)))
    return (
        Compared("storage.type", "the type of the shared root", mount.fstype),
        Compared("storage.source", "the source of the shared root", mount.source),
        Compared("storage.options", "the list of mount options", options),
    )


def local_mounts(contexts: Mapping[str, Context]) -> Iterator[Finding]:
    mounts = {host: mount for host, context in contexts.items() if (mount := mount_of_root(context))}
    for host, mount in mounts.items():
        if mount.fstype in LOCAL and len(mounts) > 1:
            yield Problem("storage.local", f"the shared root is {mount.fstype} from {mount.source}").finding(host)


def mount_of_root(context: Context) -> PathState | None:
    """The mount of the shared root; None if it could not be read, which is a finding of its own."""
    path = context.expected.shared_root
    mount = next((mount for mount in context.machine.mounts if mount.path == path), None)
    return mount if mount and mount.exists and not mount.error else None


TOPIC: Topic[Access] = Topic("storage", read, judge, compared)
