# SPDX-License-Identifier: GPL-3.0-or-later
"""The users' own Python files, copied below the shared root. They have no manifest, and change when the users like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..common.shared_root import USER_CODE
from .errors import StagingError, reported
from .files import file_sha256
from .items import UserCode
from .options import check_shared_root
from .result import Status
from .source_tree import is_plain_path
from .upload import FilesNeededError, UploadFile

MODE = 0o644
# As much as Ansible shows.
DIFF_BYTES = 104448


def stage_user_code(
    shared_root: Path, item: UserCode, received: Path | None, *, check: bool = False, diff: bool = False
) -> dict[str, Any]:
    """Replace the files that differ, each at once. received: the directory with all of them, as they arrived.

    diff: whether the result has their content before.
    """
    code = check_shared_root(shared_root) / USER_CODE
    for file in item.files:
        if not is_plain_path(file.path):
            raise StagingError(repr(file.path), "has characters that cannot be shown.", "Rename the file.")
    with reported(code / item.name, "copied"):
        changed = [file for file in item.files if not is_same(code / file.path, file)]
        before = {file.path: text_of(code / file.path) for file in changed} if diff else {}
        for file in [] if check else changed:
            if received is None:
                raise FilesNeededError(file.path)
            target = code / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            (received / file.path).chmod(MODE)
            (received / file.path).replace(target)
    status = Status.STAGED if changed else Status.EXISTS
    path = str(code / item.name)
    return {"changed": bool(changed), "name": item.name, "path": path, "status": status.value, "before": before}


def is_same(path: Path, file: UploadFile) -> bool:
    try:
        return path.lstat().st_mode & 0o777 == MODE and file_sha256(path) == file.sha256
    except OSError:
        return False


def text_of(path: Path) -> str:
    """The content of a file that can be shown."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(DIFF_BYTES)
    except (OSError, UnicodeError):
        return ""
