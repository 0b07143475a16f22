# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks machine.token and machine.state_dir: the directory with the cluster's token and its registry of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ..cluster.machine import Machine
from ..cluster.state import ROCKSDB
from .checks import Expectation, Problem

# Free space for the token, and for the registry of jobs with their JobSpecs.
STATE_FREE_BYTES = 64 * 2**20
# Free space if the tables of Ray's head are there as well: 26 MB after 20 jobs. On a full disk, the GCS ends.
TABLES_FREE_BYTES = 512 * 2**20
# File systems that other machines may mount as well.
NETWORK_FILE_SYSTEMS = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "wekafs", "afs", "ceph", "cifs", "smb3"),
    *("fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs"),
)


def token_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    path = PurePosixPath(expectation.token_file)
    most_open_modes = {str(path): 0o400, str(path.parent): 0o711} if expectation.token_file else {}
    for state in machine.mounts:
        limit = most_open_modes.get(state.path)
        # Only the rights of other users matter, not those of the owner.
        if state.mode is not None and limit is not None and state.mode & 0o077 & ~limit:
            yield Problem(
                "machine.token",
                f"{state.path} has mode {state.mode:o}, expected {limit:o}: other users of the machine could find or "
                "read the cluster's token",
                f"chmod {limit:o} {state.path}, and rotate the token if you do not trust them "
                "(cluster_up.yml -e rotate_token=true)",
            )


def state_dir_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    """Check that cluster_up can write the token and the registry of jobs, to a local disk."""
    path = str(PurePosixPath(expectation.token_file).parent) if expectation.token_file else ""
    state = next((mount for mount in machine.mounts if mount.path == path), None)
    if state is None:
        return
    location = f"{state.fstype} from {state.source}, mounted at {state.mount_point}"
    directory = f"the directory of the token, {path},"
    elsewhere = "set cluster_state_dir to a directory on a local disk that Ansible's user can write to"
    if state.error:
        yield Problem("machine.state_dir", f"{directory} cannot be read: {state.error} ({location})", elsewhere)
        return
    if state.fstype in NETWORK_FILE_SYSTEMS:
        yield Problem(
            "machine.state_dir",
            f"{directory} is {location}, expected a local disk: machines would overwrite and "
            "remove each other's token, and root may not read it there",
            elsewhere,
        )
    if not state.writable:
        problem = "cannot be written to" if state.exists else "does not exist and cannot be created"
        text = f'{directory} {problem} by user "{machine.user}" ({location})'
        yield Problem("machine.state_dir", text, elsewhere)
        return
    least = TABLES_FREE_BYTES if expectation.head_storage == ROCKSDB else STATE_FREE_BYTES
    if state.free_bytes < least:
        free = f"{state.free_bytes / 2**20:.0f} MiB"
        yield Problem(
            "machine.state_dir",
            f"{directory} has {free} free, expected at least {least // 2**20} MiB",
            f"remove files from {state.mount_point}, or {elsewhere}",
        )
