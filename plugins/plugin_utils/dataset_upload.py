# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a dataset that lie on the controller, and have to be uploaded: their paths, sizes and hashes."""

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
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import is_plain_path
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import UploadFile


def controller_patterns(item: object) -> dict[str, list[str]]:
    """The patterns of paths by split, if the files of a dataset are on the controller.

    Empty for other datasets, and for options of a wrong type, which the program reports. The controller decides this:
    a job could make the node ask for any file.
    """
    options = item if isinstance(item, Mapping) else {}
    files, place = options.get("files"), options.get("from")
    if options.get("state") == "absent" or options.get("hub") or not isinstance(files, Mapping):
        return {}
    lists = {split: [value] if isinstance(value, str) else value for split, value in files.items() if value}
    if not all(isinstance(value, list) and all(isinstance(text, str) for text in value) for value in lists.values()):
        return {}
    return lists if (place or place_of(lists)) == CONTROLLER else {}


def upload_of(patterns_by_split: Mapping[str, Sequence[str]], inventory: Path) -> Upload:
    """The files that the patterns match, with sizes and times but without hashes, and the patterns that match none.

    inventory: the directory where relative patterns begin.
    """
    controller = socket.gethostname()
    uploads: dict[str, list[UploadFile]] = {}
    missing: dict[str, list[str]] = {}
    for split, patterns in patterns_by_split.items():
        for pattern in patterns:
            full = str(inventory / Path(pattern).expanduser())
            paths = matching_files(full)
            if not paths:
                missing.setdefault(split, []).append(full)
            uploads.setdefault(split, []).extend(readable_file(split, path, controller) for path in paths)
    unique = {split: list(dict.fromkeys(matches)) for split, matches in uploads.items() if matches}
    return Upload(controller, unique, missing)


def readable_file(split: str, path: Path, controller: str) -> UploadFile:
    """A file with its size and time. Raises StagingError if its name cannot be shown or it cannot be read."""
    if not is_plain_path(path.name):
        problem = f"{path.name!r} on the controller {controller} has characters that cannot be shown."
        raise StagingError(f"files.{split}", problem, "Rename the file.")
    if not path.is_file() or not os.access(path, os.R_OK):
        problem = f"the controller {controller} cannot read {path}."
        raise StagingError(f"files.{split}", problem, "Give your user permission to read it.")
    status = path.stat()
    return UploadFile(str(path), status.st_size, status.st_mtime_ns)


def with_hashes(upload: Upload) -> Upload:
    """The same upload with the SHA-256 of all files."""
    files = {
        split: [replace(file, sha256=file_sha256(file.path)) for file in split_files]
        for split, split_files in upload.files.items()
    }
    return replace(upload, files=files)
