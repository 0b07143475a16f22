# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the controller that staging copies: those of datasets, and users' code, with what was edited since."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding, about
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import USER_CODE_DIR
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.dataset.row_source import (
    FROM_CONTROLLER,
    UploadedRows,
    default_origin,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.files import file_sha256, matching_files
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import StagingError
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import is_ignored, is_plain_path
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import UploadFile

# The most files that one source may have, and the most bytes of a file that are compared.
MAX_CODE_FILES, MAX_COMPARED_BYTES = 200, 1 << 20


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
    return lists if (place or default_origin(lists)) == FROM_CONTROLLER else {}


def upload_of(patterns_by_split: Mapping[str, Sequence[str]], inventory: Path) -> UploadedRows:
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
    return UploadedRows(controller, unique, missing)


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


def with_hashes(upload: UploadedRows) -> UploadedRows:
    """The same upload with the SHA-256 of all files."""
    files = {
        split: [replace(file, sha256=file_sha256(file.path)) for file in split_files]
        for split, split_files in upload.files.items()
    }
    return replace(upload, files=files)


def edited_file_warnings(sources: Sequence[str], used: Mapping[str, str]) -> list[Finding]:
    """A warning that names the files edited since stage.yml copied them, or none: the job uses the copies.

    sources: files and directories of the controller, as the variable staging_user_code names them.
    used: the SHA-256 of the files that the job uses, by their paths relative to the shared root.
    """
    if not used:
        return []
    files = [pair for source in sources for pair in staged_paths(source)]
    differ = [str(file) for path, file in files if path in used and used[path] != sha256_of_begin(file)]
    if not differ:
        return []
    problem = f"is not the same as on this machine: {', '.join(sorted(differ))} changed after stage.yml copied it"
    return [about("files", problem, "run stage.yml, or nothing if the copy is what you want", WARNING)]


def staged_paths(source: str) -> Iterator[tuple[str, Path]]:
    """The files of a source, with the paths of their copies relative to the shared root."""
    for name, file in itertools.islice(source_files(source), MAX_CODE_FILES):
        yield f"{USER_CODE_DIR}/{name}", file


def source_files(source: str) -> Iterator[tuple[str, Path]]:
    """The files of a source, with their paths below USER_CODE_DIR. A trailing / leaves out the directory's name."""
    top = Path(source)
    if top.is_file():
        yield top.name, top
        return
    base = top if source.endswith("/") else top.parent
    for file in sorted(top.rglob("*")):
        if file.is_file() and not is_ignored(str(file.relative_to(base))):
            yield str(file.relative_to(base)), file


def sha256_of_begin(file: Path) -> str:
    """The SHA-256 of the first MAX_COMPARED_BYTES of a file; "" if it cannot be read."""
    try:
        with file.open("rb") as content:
            return hashlib.sha256(content.read(MAX_COMPARED_BYTES)).hexdigest()
    except OSError:
        return ""
