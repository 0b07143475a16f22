# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the report of preflight to a shared root that belongs to root, where jobs cannot replace it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

DIRECTORY = "preflight"
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


def save(shared_root: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """Write files by name; return the path of the directory, or failed and msg.

    Without a path, nothing was written: jobs could replace the directory, as the nodes' user owns the shared root or
    Ansible is not root. On NFS root may have no rights (root_squash).
    """
    try:
        # The shared root itself may be a link of the machine's.
        root = os.open(shared_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if os.geteuid() or not _is_of_root(root):
                return {"changed": False, "path": ""}
            return _save(shared_root / DIRECTORY, root, files)
        finally:
            os.close(root)
    except PermissionError:
        return {"changed": False, "path": ""}
    except OSError as error:
        return {"failed": True, "msg": f"{error.filename or shared_root}: {error.strerror}"}


def _is_of_root(directory: int) -> bool:
    found = os.fstat(directory)
    return found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _save(path: Path, root: int, files: Mapping[str, str]) -> dict[str, Any]:
    with suppress(FileExistsError):
        os.mkdir(DIRECTORY, 0o755, dir_fd=root)
    try:
        directory = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | FLAGS, dir_fd=root)
    except NotADirectoryError:
        return {"failed": True, "msg": f"{path} is a link or a file: remove it"}
    try:
        if not _is_of_root(directory):
            return {"failed": True, "msg": f"{path} can be written by others than root: remove it"}
        for name, text in files.items():
            _write(directory, name, text)
    finally:
        os.close(directory)
    return {"changed": True, "path": str(path)}


def _write(directory: int, name: str, text: str) -> None:
    temporary = f".{name}.new"
    # Of a run that was killed.
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, 0o644, dir_fd=directory)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
