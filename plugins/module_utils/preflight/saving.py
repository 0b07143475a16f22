# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the report of preflight to the shared root, into a directory that belongs to the operator.

Jobs can replace directories of the shared root by links while they are used. Every step here starts at an open
directory and follows no link, so that root can do it: jobs must not be able to change the report.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..privileges import as_user, user_of

DIRECTORY = "preflight"
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


class NotOursError(Exception):
    """The directory belongs to another user, who could change what is written to it."""


def save(shared_root: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """Write files by name; return the path of the directory, or failed and msg.

    On NFS root may have no rights (root_squash). Then it is the nodes' user who writes.
    """
    try:
        return _save(shared_root, files)
    except NotOursError as error:
        return {"failed": True, "msg": str(error)}
    except OSError as error:
        user = user_of(shared_root) if os.geteuid() == 0 else None
        if isinstance(error, PermissionError) and user and user.uid:
            return as_user(user, _work(shared_root, files))
        return {"failed": True, "msg": f"{error.filename or shared_root}: {error.strerror}"}


def _work(shared_root: Path, files: Mapping[str, str]) -> Callable[[], dict[str, Any]]:
    return lambda: _save(shared_root, files)


def _save(shared_root: Path, files: Mapping[str, str]) -> dict[str, Any]:
    # The shared root itself may be a link of the machine's.
    root = os.open(shared_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            os.mkdir(DIRECTORY, 0o755, dir_fd=root)
        try:
            directory = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | FLAGS, dir_fd=root)
        except NotADirectoryError as error:
            raise NotOursError(f"{shared_root / DIRECTORY} is a link or a file: remove it") from error
    finally:
        os.close(root)
    try:
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotOursError(
                f"{shared_root / DIRECTORY} belongs to user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}, and "
                "others could change the report: remove it"
            )
        for name, text in files.items():
            _write(directory, name, text)
    finally:
        os.close(directory)
    return {"changed": True, "path": str(shared_root / DIRECTORY)}


def _write(directory: int, name: str, text: str) -> None:
    temporary = f".{name}.new"
    # Of a run that was killed.
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, 0o644, dir_fd=directory)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
