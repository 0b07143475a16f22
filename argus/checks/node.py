# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks on every node: it must see the files that the head sees, and write where jobs write."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from ..common.findings import Finding, about
from ..common.shared_root import named
from .common import CheckRequest, error_text

SAME_FILE_SYSTEM = "check that all nodes mount the same file system"


def check_node(request: CheckRequest) -> list[Finding]:
    """All problems with the shared root on this node."""
    root = Path(request.shared_root)
    jobs = root / "jobs"
    if not jobs.is_dir():
        todo = "mount the shared root at this path on every node, then run cluster_up.yml"
        return [about("shared_root", f"{jobs} does not exist", todo)]
    found = write_findings(jobs)
    for name, size in request.files.items():
        found += file_findings(key_of(request, Path(name)), Path(name), size, root.resolve())
    return found


def write_findings(directory: Path) -> list[Finding]:
    test = directory / f".write-test-{uuid.uuid4().hex}"
    try:
        with test.open("xb") as file:
            file.write(b"x")
        test.unlink()
    except OSError as error:
        todo = f"give user ID {os.geteuid()} write permission, and check that the file system is not full"
        return [about("shared_root", f"{directory} is not writable: {error.strerror or error}", todo)]
    return []


def key_of(request: CheckRequest, path: Path) -> str:
    """The key of the JobSpec that a file belongs to."""
    if request.reward_file is not None and Path(request.reward_file) == path:
        return "reward_fn_path"
    homes = (("model", request.model), ("dataset", request.dataset), ("code_path", request.code_path))
    return next((key for key, home in homes if path.is_relative_to(home)), "shared_root")


def file_findings(key: str, path: Path, size: int | None, root: Path) -> list[Finding]:
    """Problems with one file. `size` is its size on the head; `root` is the resolved shared root."""
    try:
        real = path.resolve()
        if not real.is_relative_to(root):
            todo = f"copy it there: other nodes may not have {real}"
            return [about(key, f"{path} leads out of {named(str(root))}, to {real}", todo)]
        status = path.stat()
        if path.is_file():
            with path.open("rb"):
                pass
    except FileNotFoundError:
        what = f"{path} is a link to {path.resolve()}, which does not exist" if path.is_symlink() else None
        return [about(key, what or f"{path} does not exist", SAME_FILE_SYSTEM)]
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        todo = f"give user ID {os.geteuid()} read permission, and check the file system"
        return [about(key, f"{path} cannot be read: {error_text(error)}", todo)]
    if size is not None and status.st_size != size:
        what = f"{path} has {status.st_size} bytes, but {size} bytes on the head"
        return [about(key, what, f"{SAME_FILE_SYSTEM}, and that nothing is writing to the file")]
    return []
