# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of the shared root."""

from __future__ import annotations

from pathlib import PurePosixPath

DEFAULT_SHARED_ROOT = "/private"
# Directories below the shared root.
DATASETS = "datasets"
MODELS = "common/models"
SNAPSHOTS = "common/code/verl"
USER_CODE = "user/code"
JOBS = "jobs"
# Jobs have it as their HF_HOME; the cache in it is the hub library's own.
HF_HOME = "hf"
HUB_CACHE = "hf/hub"


def under_root(path: str, shared_root: str) -> bool:
    """Whether a path lies under the shared root, by its text alone; links are followed where there are files."""
    pure = PurePosixPath(path)
    return ".." not in pure.parts and PurePosixPath(shared_root) in pure.parents


def resolve_path(value: str, shared_root: str, home: str) -> str:
    """A staged name or an absolute path, as an absolute path."""
    return value if value.startswith("/") else f"{shared_root}/{home}/{value}"
