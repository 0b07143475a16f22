# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the small files of /proc and /sys."""

from __future__ import annotations

from pathlib import Path


def read(path: Path) -> str:
    """Return the stripped text, or nothing for a file that cannot be read, as parts of sysfs cannot."""
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""
