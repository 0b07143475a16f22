# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks root.*: the shared root as one machine sees it. storage.py compares it between machines."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence

from ..argus.common.shared_root import JOBS_DIR
from ..cluster.machine import Machine
from ..cluster.paths import PathState
from .checks import GIB, Expectation, Problem, gib_text, node_uid_gid


def shared_root_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    path = expectation.shared_root
    state = next((mount for mount in machine.mounts if mount.path == path), None)
    if not path or state is None:
        return
    location = f"{state.fstype} from {state.source}, mounted at {state.mount_point}"
    types = list(expectation.shared_root_fstypes)
    expected = f" of type {' or '.join(types)}" if types else ""
    if state.error:
        yield Problem(
            "root.answers",
            f"shared root {path} cannot be read: {state.error} ({location}), expected a directory{expected}",
            "bring its file server back, or unmount it (umount -l) and mount it again",
        )
        return
    if not state.exists:
        yield Problem(
            "root.answers",
            f"shared root {path} does not exist (its nearest parent is on {location}), expected a directory{expected}",
            f"mount the shared file system at {path}, or create the directory where it is mounted already",
        )
        return
    if types and state.fstype not in types:
        yield Problem(
            "root.type",
            f"shared root {path} is {location}, expected{expected}",
            f'mount the shared file system at {path}, or add "{state.fstype}" to preflight_shared_root_fstypes',
        )
    yield from _use_problems(machine, expectation, state, location)
    yield from _owner_problems(machine, expectation, state)


def _use_problems(machine: Machine, expectation: Expectation, state: PathState, location: str) -> Iterator[Problem]:
    user, read_only = node_uid_gid(machine, expectation), "ro" in state.options
    # On NFS, root may have no rights (root_squash). It needs none if the nodes' user has them.
    ansible_needs_access = read_only or machine.uid != 0 or not _can_write_as_user(state, user, expectation.groups)
    if not state.writable and ansible_needs_access:
        yield Problem(
            "root.writable",
            f"shared root {state.path} ({location}) is {'mounted read-only' if read_only else 'not writable'}, "
            f'expected writable for user "{machine.user}" (uid {machine.uid})',
            "mount it with the option rw"
            if read_only
            else f"give it to the nodes' user (chown {user}), on NFS with root_squash on the server",
        )
    if state.free_bytes < expectation.shared_root_free_gib * GIB:
        yield Problem(
            "root.space",
            f"shared root {state.path} ({location}) has {gib_text(state.free_bytes)} free, "
            f"expected at least {expectation.shared_root_free_gib:g} GiB",
            f"remove old checkpoints and outputs below {state.path}, or grow the file system",
        )


def _can_write_as_user(state: PathState, user: str, groups: Sequence[str]) -> bool:
    """Whether a user other than root can write to the directory, or owns the job archives in it.

    groups: further groups of the user. The number of a group with a name is unknown here, so it counts as a match.
    """
    uid, gid = user.split(":")
    owner, group = (state.owner or ":").split(":")
    is_member = group in (gid, *groups) or not all(map(str.isdigit, groups))
    rights = (state.mode or 0) >> (6 if uid == owner else 3 if is_member else 0)
    return uid != "0" and (rights & 0o3 == 0o3 or (state.archives_owner or "").split(":")[0] == uid)


def _owner_problems(machine: Machine, expectation: Expectation, state: PathState) -> Iterator[Problem]:
    if state.mode is not None and state.mode & stat.S_IWOTH and not state.mode & stat.S_ISVTX:
        yield Problem(
            "root.mode",
            f"every user of the machine can replace the directories of the shared root {state.path} "
            f"(mode {state.mode:o}), expected a directory that only its owner or group can write to",
            f"chmod o-w {state.path}, or set the sticky bit (chmod +t)",
        )
    # Without root, nodes run as Ansible's user, who creates the archives.
    user, owner = node_uid_gid(machine, expectation), state.archives_owner
    if machine.uid == 0 and owner and owner.split(":")[0] != user.split(":")[0]:
        can_be_set = not machine.process and not owner.startswith("0:")
        other = f'set ray_node_user: "{owner}" for the nodes, or ' if can_be_set else ""
        yield Problem(
            "root.owner",
            f"the job archives in {state.path}/{JOBS_DIR} belong to {owner}, expected the nodes' user {user}",
            f"{other}change their owner: chown -hR {user} {state.path}/{JOBS_DIR}",
        )
