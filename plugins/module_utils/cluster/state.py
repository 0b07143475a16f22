# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state directory of a cluster on a machine: its token, the program that nodes run, and on the head's machine the
registry of its jobs.

Only Ansible's user can create files in the directory itself. The registry belongs to the nodes' user: everything in it
is taken for hostile.

Runs on machines with Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ..privileges import User
from .directories import OPEN_DIRECTORY
from .node_process import NODES

TOKEN = "auth_token"  # noqa: S105
REGISTRY = "jobs"
# Every version that nodes may still run, a link to the newest, and the command that runs it.
PROGRAM, CURRENT, COMMAND = "program", "current", "argus"
# The program inside a node.
PROGRAM_PATH = "/opt/argus"
COMMAND_TEXT = f'#!/bin/sh\nexec python3 {PROGRAM_PATH}/{CURRENT} "$@"\n'
TEMPORARY = f".{TOKEN}."
# Programs of the nodes' user reach their files by name, and other users cannot list them.
DIRECTORY_MODE = 0o711
REGISTRY_MODE = 0o750
PROGRAM_MODE = 0o755
TOKEN_BYTES = 4096


class StateError(Exception):
    """The state directory is not as it should be; the message says what, where, and what to do."""


class State:
    """The state directory of one cluster. Every method returns the paths that it changed, or in check mode would."""

    def __init__(self, state_dir: str, cluster: str, check: bool) -> None:
        self.path = Path(state_dir) / cluster
        self.check = check

    @contextlib.contextmanager
    def opened(self, create: bool = False) -> Iterator[int | None]:
        """The descriptor of the directory, or None if it does not exist; one process at a time has it."""
        if create and not self.check:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, DIRECTORY_MODE)
        directory = self._open()
        if directory is None:
            yield None
            return
        try:
            owner = os.fstat(directory).st_uid
            if owner not in (0, os.geteuid()):
                raise StateError(
                    f"{self.path} belongs to uid {owner}, not to uid {os.geteuid()} that Ansible is on this machine; "
                    "change its owner, or connect as that user"
                )
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield directory
        finally:
            os.close(directory)

    def _open(self) -> int | None:
        try:
            return os.open(self.path, OPEN_DIRECTORY)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise StateError(f"{self.path} is a link or a file, not a directory; remove it") from error

    def protect(self, directory: int) -> list[str]:
        """Set the mode of a directory that an earlier release, or an umask, made different."""
        there = os.fstat(directory)
        if stat.S_IMODE(there.st_mode) == DIRECTORY_MODE or there.st_uid != os.geteuid():
            return []
        if not self.check:
            os.fchmod(directory, DIRECTORY_MODE)
        return [str(self.path)]

    def provide_token(self, directory: int | None, user: User, token: str, rotate: bool) -> list[str]:
        """Provide a token: the given one, or a new one if there is none or it is rotated."""
        path = str(self.path / TOKEN)
        there = read_token(self.path, directory) if directory is not None else ""
        wanted = token or ("" if rotate else there)
        if there and wanted == there:
            return [path] if directory is not None and self._change_owner(directory, TOKEN, user) else []
        if directory is not None and not self.check:
            if there or token:
                replace_token(directory, token or secrets.token_hex(32), user)
            else:
                create_token(self.path, directory, secrets.token_hex(32), user)
        return [path]

    def provide_registry(self, directory: int | None, user: User) -> list[str]:
        """Provide the directory in which the head's stewards register jobs."""
        path = self.path / REGISTRY
        created = False
        if directory is None:
            return [str(path)]
        try:
            there = os.stat(REGISTRY, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            if self.check:
                return [str(path)]
            os.mkdir(REGISTRY, 0o700, dir_fd=directory)
            there, created = os.stat(REGISTRY, dir_fd=directory, follow_symlinks=False), True
        if not stat.S_ISDIR(there.st_mode):
            raise StateError(f"{path} is not a directory; remove it")
        if os.geteuid() == 0 and there.st_uid != user.uid and not created and self._entries(directory):
            nodes, owner = f"{user.uid}:{user.gid}", f"{there.st_uid}:{there.st_gid}"
            raise StateError(
                f"{path} belongs to {owner}, and the nodes' user is {nodes}; change the owner of the jobs in it "
                f'(chown -R {nodes} {path}), or run the nodes as that user (ray_node_user: "{owner}")'
            )
        changed = self._change_owner(directory, REGISTRY, user, REGISTRY_MODE)
        return [str(path)] if created or changed else []

    def provide_program(self, directory: int | None, source: Path) -> list[str]:
        """Provide a version of the program, which becomes the current one. Earlier versions stay: jobs may run them."""
        path = self.path / PROGRAM
        current, file, command = path / CURRENT, path / source.name, path / COMMAND
        if directory is not None and path.is_symlink():
            raise StateError(f"{path} is a link; remove it")
        changed = [str(file)] if program_of(self.path) != source.name or not file.is_file() else []
        if not command.is_file() or command.read_text() != COMMAND_TEXT:
            changed.append(str(command))
        if directory is None or self.check:
            return changed
        path.mkdir(exist_ok=True)
        path.chmod(PROGRAM_MODE)
        for name, content in ((source.name, source.read_bytes), (COMMAND, COMMAND_TEXT.encode)):
            if str(path / name) in changed:
                replace_file(path / name, content(), 0o444 if name != COMMAND else 0o555)
        if changed:
            temporary = path / f".{CURRENT}.{secrets.token_hex(8)}"
            temporary.symlink_to(source.name)
            temporary.replace(current)
        return changed

    @staticmethod
    def _entries(directory: int) -> list[str]:
        registry = os.open(REGISTRY, OPEN_DIRECTORY, dir_fd=directory)
        try:
            return os.listdir(registry)
        finally:
            os.close(registry)

    def _change_owner(self, directory: int, name: str, user: User, mode: int = 0o400) -> bool:
        """Give a file or directory to the nodes' user, if Ansible is root; whether that changes something."""
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        try:
            there = os.fstat(descriptor)
            owner = (there.st_uid, there.st_gid)
            wanted = tuple(user) if os.geteuid() == 0 else owner
            if (owner, stat.S_IMODE(there.st_mode)) == (wanted, mode):
                return False
            if not self.check:
                os.fchown(descriptor, *wanted)
                os.fchmod(descriptor, mode)
            return True
        finally:
            os.close(descriptor)

    def remove(self, directory: int) -> tuple[list[str], list[str]]:
        """Remove what this collection created; return what was removed, and what is left because it is not ours."""
        if not self.path.exists():
            # Another host with the same home was faster.
            return [], []
        names = sorted(os.listdir(directory))
        own = [name for name in names if name in (TOKEN, REGISTRY, PROGRAM) or name.startswith(TEMPORARY)]
        # In check mode, the processes of nodes are still here, which a run removes before.
        gone_by_then = (NODES,) if self.check else ()
        left = [str(self.path / name) for name in names if name not in own and name not in gone_by_then]
        removed = [str(self.path / name) for name in own]
        if not self.check:
            # It follows no link, whatever jobs have left in the registry.
            done = subprocess.run(["rm", "-rf", "--", *removed], capture_output=True, text=True, check=False)
            if done.returncode:
                raise StateError(done.stderr.strip())
        if not left:
            removed.append(str(self.path))
            if not self.check:
                self.path.rmdir()
        return removed, left


def program_of(path: Path) -> str:
    """The name of the current version of the program in a state directory; "" without one."""
    try:
        return os.readlink(path / PROGRAM / CURRENT)
    except OSError:
        return ""


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file; a reader sees all of it or the earlier one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    temporary.write_bytes(content)
    temporary.chmod(mode)
    temporary.replace(path)


def read_token(path: Path, directory: int) -> str:
    """The token, or nothing without one."""
    try:
        descriptor = os.open(TOKEN, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise OSError(error.errno, error.strerror, str(path / TOKEN)) from error
        raise StateError(f"{path / TOKEN} is a link; remove it") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StateError(f"{path / TOKEN} is not a regular file; remove it")
        return file.read(TOKEN_BYTES).decode("ascii", "replace").strip()


def _written(directory: int, token: str, user: User) -> str:
    """A new file with the token, which no other user can read at any moment, and its name."""
    name = f"{TEMPORARY}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o400, dir_fd=directory)
    try:
        os.write(descriptor, token.encode())
        if os.geteuid() == 0:
            os.fchown(descriptor, *user)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return name


def create_token(path: Path, directory: int, token: str, user: User) -> str:
    """Create the token, and return it; or return the token of another process that was faster."""
    name = _written(directory, token, user)
    try:
        os.link(name, TOKEN, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return read_token(path, directory)
    finally:
        os.unlink(name, dir_fd=directory)
    return token


def replace_token(directory: int, token: str, user: User) -> None:
    """Replace the token; a reader sees the old one or the new one."""
    os.replace(_written(directory, token, user), TOKEN, src_dir_fd=directory, dst_dir_fd=directory)
