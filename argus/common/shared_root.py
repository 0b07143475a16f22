# SPDX-License-Identifier: Apache-2.0
"""The layout of the shared root, in paths relative to it. docs/files_on_machines.md describes each directory."""

from __future__ import annotations

import re
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


def outside(path: str, shared_root: str) -> str:
    return f"{path} is outside the shared root {shared_root}"


def bring(home: str) -> str:
    """The remedy for a path outside. home: the directory of the shared root for such files."""
    return f"copy it to {home} there, or stage it with stage.yml"


def root_text(shared_root: str) -> str:
    """The name of the shared root in findings, as nodes see it; `with_source` adds the path on machines."""
    return f"the shared root {shared_root}"


def with_source(text: str, shared_root: str, source: str) -> str:
    """A finding's text that also names the shared root's path on the machines, where people copy files."""
    if not source or source == shared_root:
        return text
    return re.sub(
        rf"{re.escape(root_text(shared_root))}(?![\w/.-])", lambda match: f"{match[0]} ({source} on the machines)", text
    )


def resolve_path(value: str, shared_root: str, home: str) -> str:
    """The absolute path of a value that is either absolute or the name of something in `home`."""
    return value if value.startswith("/") else f"{shared_root}/{home}/{value}"


def archive_path(shared_root: str, submission_id: str) -> str:
    return f"{shared_root}/{JOBS}/{submission_id}"
