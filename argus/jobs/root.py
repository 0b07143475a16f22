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
        status = os.statvfs(root)
    except OSError as error:
        return f"The shared root cannot be examined: {root}: {error.strerror}"
    free = status.f_bavail * status.f_frsize
    if status.f_flag & os.ST_RDONLY:
        return f"The shared root is mounted read-only: {root}"
    # Some file systems count neither blocks nor files.
    if status.f_blocks and free < LEAST_BYTES:
        return f"The shared root is full: {root} has {free >> 10} KiB free"
    if status.f_files and status.f_favail < LEAST_FILES:
        return f"The shared root is full: {root} has {status.f_favail} inodes free"
    return ""
