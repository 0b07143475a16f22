# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mount of the shared root, compared between all machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..argus.common.findings import Finding
from ..cluster.hardware import PathState
from .checks import Context, Problem, differences

# File systems of one machine alone. A bind mount of one of them may still be shared by containers.
LOCAL = ("btrfs", "ext2", "ext3", "ext4", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
# Options that name the client, and those that the kernel adds without a meaning for us.
OWN = ("addr=", "clientaddr=", "mountaddr=", "port=", "mountport=", "seclabel", "relatime")


def mount_findings(contexts: Mapping[str, Context]) -> Iterator[Finding]:
    mounts = {host: mount for host, context in contexts.items() if (mount := mount_of_root(context))}
    for key, name, value in (
        ("storage.type", "the type of the shared root", lambda mount: mount.fstype),
        ("storage.source", "the source of the shared root", lambda mount: mount.source),
        ("storage.options", "the list of mount options", options),
    ):
        yield from differences(key, name, {host: value(mount) for host, mount in mounts.items()})
    # Nodes that are processes may share a host: it has the same addresses.
    machines = {tuple(each.addresses for each in contexts[host].machine.interfaces) or host for host in mounts}
    for host, mount in mounts.items():
        if mount.fstype in LOCAL and len(machines) > 1:
            yield Problem("storage.local", f"the shared root is {mount.fstype} from {mount.source}").finding(host)


def options(mount: PathState) -> str:
    return ",".join(sorted(option for option in mount.options if not option.startswith(OWN)))


def mount_of_root(context: Context) -> PathState | None:
    """The mount of the shared root; None if it could not be read, which is a finding of its own."""
    path = context.expected.shared_root
    mount = next((mount for mount in context.machine.mounts if mount.path == path), None)
    return mount if mount and mount.exists and not mount.error else None
