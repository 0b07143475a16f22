# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a dataset that are on the controller."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.argus.staging.dataset.upload import (
    CONTROLLER,
    Upload,
    place_of,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import StagingError
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.files import (
    file_sha256,
    matching,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import is_plain_path
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import UploadFile

Files = Mapping[str, Sequence[str]]


def controller_files(item: object) -> dict[str, list[str]]:
    """The patterns of a dataset whose files are on the controller, by split.

    None for other datasets, and for options of a wrong type, which the program reports. The node is not asked: a job
    could let it name files.
    """
    options = item if isinstance(item, Mapping) else {}
    files, place = options.get("files"), options.get("from")
    if options.get("state") == "absent" or options.get("hub") or not isinstance(files, Mapping):
        return {}
    lists = {split: [several] if isinstance(several, str) else several for split, several in files.items() if several}
    if not all(
        isinstance(several, list) and all(isinstance(each, str) for each in several) for several in lists.values()
    ):
        return {}
    return lists if (place or place_of(lists)) == CONTROLLER else {}


def upload_of(files: Files, inventory: Path) -> Upload:
    """The files of the controller that patterns match, and those that match none; nothing is read yet."""
    controller = socket.gethostname()
    found: dict[str, list[UploadFile]] = {}
    missing: dict[str, list[str]] = {}
    for split, several in files.items():
        for pattern in several:
            full = str(inventory / Path(pattern).expanduser())
            paths = matching(full)
            if not paths:
                missing.setdefault(split, []).append(full)
            found.setdefault(split, []).extend(described(split, path, controller) for path in paths)
    unique = {split: list(dict.fromkeys(several)) for split, several in found.items() if several}
    return Upload(controller, unique, missing)


def described(split: str, path: Path, controller: str) -> UploadFile:
    if not is_plain_path(path.name):
        what = f"{path.name!r} on the controller {controller} has characters that cannot be shown."
        raise StagingError(f"files.{split}", what, "Rename the file.")
    if not path.is_file() or not os.access(path, os.R_OK):
        what = f"the controller {controller} cannot read {path}."
        raise StagingError(f"files.{split}", what, "Give your user permission to read it.")
    found = path.stat()
    return UploadFile(str(path), found.st_size, found.st_mtime_ns)


def read(upload: Upload) -> Upload:
    """The same with the hashes of all files."""
    files = {
        split: [replace(file, sha256=file_sha256(file.path)) for file in several]
        for split, several in upload.files.items()
    }
    return replace(upload, files=files)
