# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of the shared root, in paths relative to it. docs/files_on_machines.md describes each directory."""

from __future__ import annotations

from pathlib import PurePosixPath

DEFAULT_SHARED_ROOT = "/private"
JOBS = "jobs"
DATASETS = "datasets"
MODELS = "common/models"
SNAPSHOTS = "common/code/verl"
USER_CODE = "user/code"
# Jobs have HF_HOME here; HUB_CACHE is the directory that huggingface_hub calls cache_dir.
HF_HOME = "hf"
HUB_CACHE = "hf/hub"


def under_root(path: str, shared_root: str) -> bool:
    """Whether a path lies under the shared root, judged by its text. Links are not followed."""
    pure = PurePosixPath(path)
    return ".." not in pure.parts and PurePosixPath(shared_root) in pure.parents


def resolve_path(value: str, shared_root: str, home: str) -> str:
    """The absolute path of a value that is either absolute or the name of something in `home`."""
    return value if value.startswith("/") else f"{shared_root}/{home}/{value}"


def archive_path(shared_root: str, submission_id: str) -> str:
    """The directory of a job's archive."""
    return f"{shared_root}/{JOBS}/{submission_id}"
