# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the files of a dataset are: on the controller, on the shared root, or on the nodes."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import under_root
from ansible_collections.argus.verl.plugins.module_utils.argus.snapshot.tree import is_plain_path
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.dataset.upload import Upload, UploadFile
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import StagingError
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.files import (
    file_sha256,
    matching,
)
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node

Files = Mapping[str, Sequence[str]]


class From(StrEnum):
    """Where files are."""

    CONTROLLER = "controller"
    SHARED_ROOT = "shared_root"
    NODE = "node"


def place_of(files: Files, given: str | None) -> From:
    """Where files are, without from: relative paths are on the controller, absolute ones on the nodes."""
    if given:
        return From(given)
    absolute = {pattern.startswith("/") for several in files.values() for pattern in several}
    if len(absolute) > 1:
        todo = "Set from: controller, shared_root or node."
        raise StagingError("files", "has relative paths, of the controller, and absolute ones, of nodes.", todo)
    return From.CONTROLLER if absolute == {False} else From.NODE


def resolved(arguments: Mapping[str, Any], node: Node) -> tuple[dict[str, Any], Files]:
    """The options of a dataset for the program, and the patterns of its files on the controller."""
    item = dict(arguments)
    given, files = item.pop("from", None), files_of(item.get("files"))
    if given and given not in [*From]:
        raise StagingError("from", f'"{given}" is not one of {", ".join(From)}.', "Correct it.")
    if given and (item.get("hub") or not files):
        raise StagingError("from", "has an effect only with files, and not with hub.", "Omit it.")
    if item.get("state") == "absent" or item.get("hub") or not files:
        return item, {}
    place = place_of(files, given)
    if place is From.SHARED_ROOT:
        item["files"] = {
            split: [below_root(split, pattern, node.shared_root, node.shared_root_source) for pattern in several]
            for split, several in files.items()
        }
    if place is From.CONTROLLER:
        del item["files"]
    return item, files if place is From.CONTROLLER else {}


def files_of(given: object) -> dict[str, list[str]]:
    """The patterns of each split; a single text is one pattern, as modules accept it."""
    if not isinstance(given, Mapping):
        return {}
    lists = {split: [several] if isinstance(several, str) else several for split, several in given.items() if several}
    return {split: [str(each) for each in several] for split, several in lists.items()}


def below_root(split: str, pattern: str, root: str, source: str | None) -> str:
    path = pattern if pattern.startswith("/") else f"{root}/{pattern}"
    if not under_root(path, root):
        also = f" in nodes, and {source} on the head's machine" if source else ""
        what = f'"{pattern}" is not below the shared root, which is {root}{also}.'
        raise StagingError(f"files.{split}", what, "Give the path relative to the shared root.")
    return path


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
