# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the shared root can be written: if not, what archives say is older than it looks."""

from __future__ import annotations

import os
from pathlib import Path

# A status and a heartbeat need a few KiB.
LEAST_BYTES, LEAST_FILES = 1 << 20, 16


def root_problem(root: Path) -> str:
    """Why nothing can be written to a shared root, as this host sees it, or ""."""
    try:
        found = os.statvfs(root)
    except OSError as error:
        return f"The shared root cannot be examined: {root}: {error.strerror}"
    return describe(str(root), found)


def describe(root: str, found: os.statvfs_result) -> str:
    if found.f_flag & os.ST_RDONLY:
        return f"The shared root is mounted read-only: {root}"
    free = found.f_bavail * found.f_frsize
    # Some file systems count neither blocks nor files.
    if found.f_blocks and free < LEAST_BYTES:
        return f"The shared root is full: {root} has {free >> 10} KiB free"
    if found.f_files and found.f_favail < LEAST_FILES:
        return f"The shared root is full: {root} has {found.f_favail} inodes free"
    return ""
