# SPDX-License-Identifier: GPL-3.0-or-later
"""The state directory of a cluster on a machine: the cluster's token and the program that nodes run.

On the head's machine, it also holds the registry of jobs and the tables of Ray's head. These two belong to the nodes'
user, so nothing in them is opened here. Only Ansible's user can create files in the state directory itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ..argus.common.node_process import NODES_DIR, open_nonblocking
from ..privileges import User

# Names of files and directories in the state directory.
TOKEN = "auth_token"  # noqa: S105
REGISTRY = "jobs"
# The directory of the tables in which Ray's GCS keeps metadata and environments of jobs.
TABLES = "tables"
# The value of cluster_head_storage with which Ray's head has tables.
ROCKSDB = "rocksdb"
# The directory of the program has a file for each version, CURRENT as a link to one of them, and COMMAND for people. In
# a container, it is mounted at PROGRAM_PATH.
PROGRAM, CURRENT, COMMAND = "program", "current", "argus"
PROGRAM_PATH = "/opt/argus"
# Isolated (-I): the program gets secrets of jobs, and the working directory may contain other users' modules.
COMMAND_TEXT = f'#!/bin/sh\nexec python3 -I {PROGRAM_PATH}/{CURRENT} "$@"\n'
# What a file is named if writing the token was interrupted.
TEMPORARY_PREFIX = f".{TOKEN}."
# Other users cannot list the state directory, but pass through it to what is mounted into containers.
DIRECTORY_MODE = 0o711
REGISTRY_MODE = 0o750
TABLES_MODE = 0o700
PROGRAM_MODE = 0o755
TOKEN_MODE = 0o400
MAX_TOKEN_BYTES = 4096


class StateError(Exception):
    """The state directory is not as it should be; the message says what, where, and what to do."""


class StateDirectory:
    """The state directory of one cluster. Every method returns the paths that it changed, or in check mode would."""

    def __init__(self, state_dir: str, cluster: str, check: bool) -> None:
        self.path = Path(state_dir) / cluster
        self.check = check

    @contextlib.contextmanager
    def open(self, create: bool = False) -> Iterator[bool]:
        """Lock the directory until the end of the block, and yield whether it exists. Raises StateError."""
        if create and not self.check:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(DIRECTORY_MODE)
        if not os.path.lexists(self.path):
            yield False
            return
        if self.path.is_symlink() or not self.path.is_dir():
            raise StateError(f"{self.path} is a link or a file, not a directory; remove it")
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            owner = os.fstat(directory).st_uid
            if owner not in (0, os.geteuid()):
                raise StateError(
                    f"{self.path} belongs to uid {owner}, not to uid {os.geteuid()} that Ansible is on this machine; "
                    "change its owner, or connect as that user"
                )
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield True
        finally:
            os.close(directory)

    def protect(self) -> list[str]:
        """Set the mode of the directory, which an umask or an earlier release may have made different."""
        status = self.path.stat()
        if stat.S_IMODE(status.st_mode) == DIRECTORY_MODE or status.st_uid != os.geteuid():
            return []
        if not self.check:
            self.path.chmod(DIRECTORY_MODE)
        return [str(self.path)]

    def provide_token(self, user: User, token: str, rotate: bool) -> list[str]:
        """Provide the token: the given one, or a new one if there is none or it is rotated."""
        path = self.path / TOKEN
        current = read_token(path)
        target = token or ("" if rotate else current)
        if current and target == current:
            return self._set_owner(path, user, TOKEN_MODE)
        if not self.check:
            replace(path, (token or secrets.token_hex(32)).encode(), TOKEN_MODE, user)
        return [str(path)]

    def provide_registry(self, user: User) -> list[str]:
        """Provide the directory in which the head's steward registers jobs."""
        return self._provide_directory(REGISTRY, REGISTRY_MODE, user)

    def provide_tables(self, user: User, enabled: bool) -> list[str]:
        """Provide the directory of the tables of Ray's head, or remove it, so that no later head reads old tables."""
        path = self.path / TABLES
        if enabled:
            return self._provide_directory(TABLES, TABLES_MODE, user)
        if not os.path.lexists(path):
            return []
        if not self.check:
            remove_trees(path)
        return [str(path)]

    def _provide_directory(self, name: str, mode: int, user: User) -> list[str]:
        """Provide a directory that belongs to the nodes' user. Raises StateError if another user has files in it."""
        path = self.path / name
        created = not os.path.lexists(path)
        if created and self.check:
            return [str(path)]
        if created:
            path.mkdir(0o700)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise StateError(f"{path} is not a directory; remove it")
        if os.geteuid() == 0 and status.st_uid != user.uid and not created and os.listdir(path):
            nodes, owner = f"{user.uid}:{user.gid}", f"{status.st_uid}:{status.st_gid}"
            raise StateError(
                f"{path} belongs to {owner}, and the nodes' user is {nodes}; change the owner of what is in it "
                f'(chown -R {nodes} {path}), or run the nodes as that user (ray_node_user: "{owner}")'
            )
        changed = self._set_owner(path, user, mode)
        return [str(path)] if created else changed

    def provide_program(self, source: Path) -> list[str]:
        """Copy a version of the program, and make it the current one. Earlier versions stay: jobs may run them."""
        path = self.path / PROGRAM
        if path.is_symlink():
            raise StateError(f"{path} is a link; remove it")
        file, command = path / source.name, path / COMMAND
        changed = []
        if program_of(self.path) != source.name or not file.is_file():
            changed.append(file)
        if not command.is_file() or command.read_text() != COMMAND_TEXT:
            changed.append(command)
        if changed and not self.check:
            path.mkdir(exist_ok=True)
            path.chmod(PROGRAM_MODE)
            if file in changed:
                replace(file, source.read_bytes(), 0o444)
            if command in changed:
                replace(command, COMMAND_TEXT.encode(), 0o555)
            temporary = path / f".{CURRENT}.{secrets.token_hex(8)}"
            temporary.symlink_to(source.name)
            temporary.replace(path / CURRENT)
        return [str(changed_file) for changed_file in changed]

    def _set_owner(self, path: Path, user: User, mode: int) -> list[str]:
        """Set the mode of a file or directory, and if Ansible is root, make the nodes' user its owner."""
        status = path.lstat()
        owner = User(status.st_uid, status.st_gid)
        new_owner = user if os.geteuid() == 0 else owner
        if (owner, stat.S_IMODE(status.st_mode)) == (new_owner, mode):
            return []
        if not self.check:
            os.chown(path, *new_owner, follow_symlinks=False)
            path.chmod(mode)
        return [str(path)]

    def remove(self) -> tuple[list[str], list[str]]:
        """Remove what this collection created. Return the removed paths, and the remaining ones, which are not ours."""
        if not self.path.exists():
            # Hosts can share a home directory, and another one was faster.
            return [], []
        names = sorted(os.listdir(self.path))
        ours = (TOKEN, REGISTRY, TABLES, PROGRAM)
        created = [name for name in names if name in ours or name.startswith(TEMPORARY_PREFIX)]
        # A run removes the nodes before this. In check mode, they are still here.
        removed_earlier = (NODES_DIR,) if self.check else ()
        remaining = [str(self.path / name) for name in names if name not in created and name not in removed_earlier]
        removed = [str(self.path / name) for name in created]
        if not self.check:
            remove_trees(*removed)
        if not remaining:
            removed.append(str(self.path))
            if not self.check:
                self.path.rmdir()
        return removed, remaining


def remove_trees(*paths: str | Path) -> None:
    """Remove files and directories. Jobs may have left links in the registry, and `rm` follows none."""
    result = subprocess.run(["rm", "-rf", "--", *paths], capture_output=True, text=True, check=False)
    if result.returncode:
        raise StateError(result.stderr.strip())


def program_of(state_dir: Path) -> str:
    """Return the file name of the current version of the program in a state directory; "" without one."""
    try:
        return os.readlink(state_dir / PROGRAM / CURRENT)
    except OSError:
        return ""


def read_token(path: Path) -> str:
    """Return the token; "" without the file. Raises StateError for a link, or what is not a regular file."""
    if path.is_symlink():
        raise StateError(f"{path} is a link; remove it")
    try:
        with open_nonblocking(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StateError(f"{path} is not a regular file; remove it")
            return file.read(MAX_TOKEN_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def replace(path: Path, content: bytes, mode: int, user: User | None = None) -> None:
    """Write a file at once: readers see the old or the new content. The mode holds from the first byte on."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            if user and os.geteuid() == 0:
                os.fchown(file.fileno(), *user)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
