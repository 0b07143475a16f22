# SPDX-License-Identifier: Apache-2.0
"""The layout of the shared root, relative to it, and its wording in findings. See docs/files_on_machines.md."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

DEFAULT_SHARED_ROOT = "/private"
JOBS_DIR = "jobs"
DATASETS_DIR = "datasets"
MODELS_DIR = "common/models"
CODE_DIR = "common/code/verl"
USER_CODE_DIR = "user/code"
# Jobs have HF_HOME here; HUB_CACHE is the directory that huggingface_hub calls cache_dir.
HF_HOME = "hf"
HUB_CACHE = "hf/hub"


def under_root(path: str, shared_root: str) -> bool:
    """Whether a path lies under the shared root, judged by its text. Links are not followed."""
    pure = PurePosixPath(path)
    return ".." not in pure.parts and PurePosixPath(shared_root) in pure.parents


def full_path(value: str, shared_root: str, subdirectory: str) -> str:
    """The absolute path of a value that is either absolute or the name of something in the subdirectory."""
    return value if value.startswith("/") else f"{shared_root}/{subdirectory}/{value}"


def archive_path(shared_root: str, submission_id: str) -> str:
    return f"{shared_root}/{JOBS_DIR}/{submission_id}"


def outside_root_text(path: str, shared_root: str) -> str:
    return f"{path} is outside the shared root {shared_root}"


def copy_remedy(subdirectory: str) -> str:
    """The remedy for a path outside. subdirectory: of the shared root, for such files."""
    return f"copy it to {subdirectory} there, or stage it with stage.yml"


def shared_root_text(shared_root: str) -> str:
    """The shared root in findings, at its path in Ray nodes; `with_host_path` adds its path on their hosts."""
    return f"the shared root {shared_root}"


def with_host_path(text: str, shared_root: str, host_path: str) -> str:
    """A finding's text that also names the shared root's path on the machines (hosts), where people copy files."""
    if not host_path or host_path == shared_root:
        return text
    name = re.escape(shared_root_text(shared_root))
    return re.sub(rf"{name}(?![\w/.-])", lambda match: f"{match[0]} ({host_path} on the machines)", text)
