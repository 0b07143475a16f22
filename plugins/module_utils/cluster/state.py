# SPDX-License-Identifier: GPL-3.0-or-later
"""The state directory of a cluster on a machine: its token, the program that nodes run, and on the head's machine the
registry of its jobs and the tables of Ray's head.

Only Ansible's user can create files in the directory itself. The registry and the tables belong to the nodes' user:
nothing in them is opened.

Runs on machines with Python 3.9 and newer.
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

TOKEN = "auth_token"  # noqa: S105
REGISTRY = "jobs"
# The tables of Ray's head: the metadata of jobs, and their environments.
TABLES = "tables"
# The value of cluster_head_storage with which the head has tables.
ROCKSDB = "rocksdb"
# The program: a file for each version, a link to the current one, and the command for people. In a container, the
# directory is mounted at PROGRAM_PATH.
PROGRAM, CURRENT, COMMAND = "program", "current", "argus"
PROGRAM_PATH = "/opt/argus"
# Isolated (-I): the program gets secrets of jobs, and the working directory may have modules of others.
COMMAND_TEXT = f'#!/bin/sh\nexec python3 -I {PROGRAM_PATH}/{CURRENT} "$@"\n'
# The prefix of a file whose writing was interrupted.
TEMPORARY = f".{TOKEN}."
# Modes: containers have what is mounted; other users can list nothing.
DIRECTORY_MODE = 0o711
REGISTRY_MODE = 0o750
TABLES_MODE = 0o700
PROGRAM_MODE = 0o755
TOKEN_MODE = 0o400
TOKEN_BYTES = 4096


class StateError(Exception):
    """The state directory is not as it should be; the message says what, where, and what to do."""


class State:
    """The state directory of one cluster. Every method returns the paths that it changed, or in check mode would."""

    def __init__(self, state_dir: str, cluster: str, check: bool) -> None:
        self.path = Path(state_dir) / cluster
        self.check = check

    @contextlib.contextmanager
    def open(self, create: bool = False) -> Iterator[bool]:
        """Lock the directory, and yield whether it exists."""
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
        """Set the mode of a directory that an earlier release, or an umask, made different."""
        status = self.path.stat()
        if stat.S_IMODE(status.st_mode) == DIRECTORY_MODE or status.st_uid != os.geteuid():
            return []
        if not self.check:
            self.path.chmod(DIRECTORY_MODE)
        return [str(self.path)]

    def provide_token(self, user: User, token: str, rotate: bool) -> list[str]:
        """Provide a token: the given one, or a new one if there is none or it is rotated."""
        path = self.path / TOKEN
        current = read_token(path)
        target = token or ("" if rotate else current)
        if current and target == current:
            return self._give(path, user, TOKEN_MODE)
        if not self.check:
            replace(path, (token or secrets.token_hex(32)).encode(), TOKEN_MODE, user)
        return [str(path)]

    def provide_registry(self, user: User) -> list[str]:
        """Provide the directory in which the head's steward registers jobs."""
        return self._provide(REGISTRY, REGISTRY_MODE, user)

    def provide_tables(self, user: User, enabled: bool) -> list[str]:
        """Provide the directory of the tables of Ray's head, or remove it: no later head may take them for its own."""
        path = self.path / TABLES
        if enabled:
            return self._provide(TABLES, TABLES_MODE, user)
        if not os.path.lexists(path):
            return []
        if not self.check:
            remove_trees(path)
        return [str(path)]

    def _provide(self, name: str, mode: int, user: User) -> list[str]:
        """Provide a directory of the nodes' user."""
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
        changed = self._give(path, user, mode)
        return [str(path)] if created else changed

    def provide_program(self, source: Path) -> list[str]:
        """Provide a version of the program, which becomes the current one. Earlier versions stay: jobs may run them."""
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

    def _give(self, path: Path, user: User, mode: int) -> list[str]:
        """Give a file or directory to the nodes' user, if Ansible is root."""
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
        """Remove what this collection created; return what was removed, and what is left because it is not ours."""
        if not self.path.exists():
            # Another host with the same home was faster.
            return [], []
        names = sorted(os.listdir(self.path))
        created = [name for name in names if name in (TOKEN, REGISTRY, TABLES, PROGRAM) or name.startswith(TEMPORARY)]
        # In check mode, the nodes are still here, which a run has removed before.
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
    """Remove files and directories. `rm` follows no link, whatever jobs have left in the registry."""
    result = subprocess.run(["rm", "-rf", "--", *paths], capture_output=True, text=True, check=False)
    if result.returncode:
        raise StateError(result.stderr.strip())


def program_of(path: Path) -> str:
    """The name of the current version of the program in a state directory; "" without one."""
    try:
        return os.readlink(path / PROGRAM / CURRENT)
    except OSError:
        return ""


def read_token(path: Path) -> str:
    if path.is_symlink():
        raise StateError(f"{path} is a link; remove it")
    try:
        with open_nonblocking(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StateError(f"{path} is not a regular file; remove it")
            return file.read(TOKEN_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def replace(path: Path, content: bytes, mode: int, user: User | None = None) -> None:
    """Write a file; a reader sees all of it or the earlier one, and other users never what its mode forbids."""
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
