# SPDX-License-Identifier: Apache-2.0
"""The directories of the shared root (docs/files_on_machines.md), and sentences of findings about it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

DEFAULT_SHARED_ROOT = "/private"
# The following are relative to the shared root.
JOBS_DIR = "jobs"
DATASETS_DIR = "datasets"
MODELS_DIR = "common/models"
CODE_DIR = "common/code/verl"
USER_CODE_DIR = "user/code"
# HF_HOME of jobs, and the directory in it that huggingface_hub calls cache_dir.
HF_HOME_DIR = "hf"
HUB_CACHE_DIR = "hf/hub"


def is_under_root(path: str, shared_root: str) -> bool:
    """Whether a path lies below the shared root and is not the root itself. Links are not followed."""
    pure = PurePosixPath(path)
    return ".." not in pure.parts and PurePosixPath(shared_root) in pure.parents


def full_path(path_or_name: str, shared_root: str, subdirectory: str) -> str:
    """An absolute path as it is; a name as a path in this subdirectory of the shared root."""
    return path_or_name if path_or_name.startswith("/") else f"{shared_root}/{subdirectory}/{path_or_name}"


def archive_path(shared_root: str, submission_id: str) -> str:
    return f"{shared_root}/{JOBS_DIR}/{submission_id}"


# Sentences of findings.
def outside_root_text(path: str, shared_root: str) -> str:
    return f"{path} is outside the shared root {shared_root}"


def copy_remedy(subdirectory: str) -> str:
    """The remedy for the problem outside_root_text. subdirectory: where such files belong in the shared root."""
    return f"copy it to {subdirectory} there, or stage it with stage.yml"


def shared_root_text(shared_root: str) -> str:
    """How findings name the shared root: by its path in nodes. `with_machine_path` later adds the path on machines."""
    return f"the shared root {shared_root}"


def with_machine_path(text: str, shared_root: str, machine_path: str) -> str:
    """The text of a finding, with the path of the shared root on the machines, where people copy files.

    machine_path: that path; empty or the same as in nodes leaves the text unchanged.
    """
    if not machine_path or machine_path == shared_root:
        return text
    name = re.escape(shared_root_text(shared_root))
    return re.sub(rf"{name}(?![\w/.-])", lambda match: f"{match[0]} ({machine_path} on the machines)", text)
