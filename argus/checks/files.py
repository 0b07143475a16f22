# SPDX-License-Identifier: Apache-2.0
"""Helpers of checks that read files: Git LFS pointers in place of files, and the texts of errors."""

from __future__ import annotations

from pathlib import Path

from ..common.text import one_line

MAX_ERROR_CHARS = 300
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def error_text(error: BaseException) -> str:
    """The message of an error on one line; the name of its type if it has none."""
    return one_line(error, MAX_ERROR_CHARS) or type(error).__name__


def is_lfs_pointer(path: Path) -> bool:
    """Whether a file has only the pointer that a clone without Git LFS leaves in its place."""
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def lfs_pointer_problem(path: Path) -> tuple[str, str]:
    """The problem with a Git LFS pointer in place of a file, and its remedy."""
    remedy = "run `git lfs pull` in the clone and stage it again, or download the file again"
    return f"{path} is a Git LFS pointer, not the file", remedy
