# SPDX-License-Identifier: Apache-2.0
"""The users' own Python files, copied below the shared root. They have no manifest, and change when the users like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..common.shared_root import USER_CODE_DIR
from .files import file_sha256
from .items import UserCode
from .options import StagingError, as_staging_errors, check_shared_root
from .result import Status
from .source_tree import is_plain_path
from .upload import FilesNeededError, UploadFile

FILE_MODE = 0o644
# The maximum size of a diff that Ansible shows.
MAX_DIFF_BYTES = 104448


def stage_user_code(
    shared_root: Path, item: UserCode, received: Path | None, *, check: bool = False, diff: bool = False
) -> dict[str, Any]:
    """Replaces the files that differ, each by a rename. Returns the result as JSON.

    received: the directory in which all files have arrived; without it, FilesNeededError is raised if a file differs.
    diff: whether the result has the previous contents, in `before` by path.
    """
    code = check_shared_root(shared_root) / USER_CODE_DIR
    for file in item.files:
        if not is_plain_path(file.path):
            raise StagingError(repr(file.path), "has characters that cannot be shown.", "Rename the file.")
    with as_staging_errors(code / item.name, "copied"):
        changed = [file for file in item.files if not is_up_to_date(code / file.path, file)]
        before = {file.path: shown_text(code / file.path) for file in changed} if diff else {}
        for file in [] if check else changed:
            if received is None:
                raise FilesNeededError(file.path)
            target = code / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            (received / file.path).chmod(FILE_MODE)
            (received / file.path).replace(target)
    status = Status.STAGED if changed else Status.EXISTS
    path = str(code / item.name)
    return {"changed": bool(changed), "name": item.name, "path": path, "status": status.value, "before": before}


def is_up_to_date(path: Path, file: UploadFile) -> bool:
    try:
        return path.lstat().st_mode & 0o777 == FILE_MODE and file_sha256(path) == file.sha256
    except OSError:
        return False


def shown_text(path: Path) -> str:
    """The beginning of a file for a diff; empty if the file does not exist or is not text."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_DIFF_BYTES)
    except (OSError, UnicodeError):
        return ""
