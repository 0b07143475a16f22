# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of datasets that lie on the controller: which they are, and their hashes."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.argus.staging.dataset.source import (
    CONTROLLER,
    Upload,
    place_of,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.files import file_sha256, matching_files
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import StagingError
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import (
    is_plain_path,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import UploadFile

PatternsBySplit = Mapping[str, Sequence[str]]


def controller_patterns(item: object) -> dict[str, list[str]]:
    """The patterns of a dataset whose files are on the controller, by split.

    Empty for other datasets, and for options of a wrong type, which the program reports. Decided here, not by the node:
    a job could make the node ask for arbitrary files.
    """
    options = item if isinstance(item, Mapping) else {}
    files, place = options.get("files"), options.get("from")
    if options.get("state") == "absent" or options.get("hub") or not isinstance(files, Mapping):
        return {}
    lists = {split: [value] if isinstance(value, str) else value for split, value in files.items() if value}
    if not all(isinstance(value, list) and all(isinstance(text, str) for text in value) for value in lists.values()):
        return {}
    return lists if (place or place_of(lists)) == CONTROLLER else {}


def upload_of(patterns_by_split: PatternsBySplit, inventory: Path) -> Upload:
    """The files of the controller that patterns match, and those that match none; nothing is read yet."""
    controller = socket.gethostname()
    uploads: dict[str, list[UploadFile]] = {}
    missing: dict[str, list[str]] = {}
    for split, patterns in patterns_by_split.items():
        for pattern in patterns:
            full = str(inventory / Path(pattern).expanduser())
            paths = matching_files(full)
            if not paths:
                missing.setdefault(split, []).append(full)
            uploads.setdefault(split, []).extend(upload_file(split, path, controller) for path in paths)
    unique = {split: list(dict.fromkeys(matches)) for split, matches in uploads.items() if matches}
    return Upload(controller, unique, missing)


def upload_file(split: str, path: Path, controller: str) -> UploadFile:
    if not is_plain_path(path.name):
        problem = f"{path.name!r} on the controller {controller} has characters that cannot be shown."
        raise StagingError(f"files.{split}", problem, "Rename the file.")
    if not path.is_file() or not os.access(path, os.R_OK):
        problem = f"the controller {controller} cannot read {path}."
        raise StagingError(f"files.{split}", problem, "Give your user permission to read it.")
    status = path.stat()
    return UploadFile(str(path), status.st_size, status.st_mtime_ns)


def with_hashes(upload: Upload) -> Upload:
    """The upload with the hashes of all files."""
    files = {
        split: [replace(file, sha256=file_sha256(file.path)) for file in split_files]
        for split, split_files in upload.files.items()
    }
    return replace(upload, files=files)
