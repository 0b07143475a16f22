# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories under the shared root that are made once: whole or not at all, each with its manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import StagingError
from .files import directories_of, each, entries_below, file_sha256, files_below, is_litter

MANIFEST = "manifest.json"
NAMED_FILES = 20
ADDED = "is not in the manifest"


def manifest_file(target: Path) -> Path:
    """In the directory; of a link beside it, because what it points at is not ours."""
    return manifest_beside(target) if target.is_symlink() else target / MANIFEST


def manifest_beside(target: Path) -> Path:
    return target.with_name(f".{target.name.removeprefix('.')}.{MANIFEST}")


def manifest_of(target: Path) -> dict[str, Any] | None:
    """What the manifest of a staged directory says; None when there is nothing of that name."""
    # A dangling link occupies the name too.
    if not os.path.lexists(target):
        return None
    file = manifest_file(target)
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise StagingError(
            target, f"exists, but was not staged: it has no {file.name}.", "Choose another name, or move it away."
        ) from None
    except OSError as error:
        raise StagingError(
            target, f"cannot be read ({error}).", f"Give user id {os.geteuid()} permission to read it."
        ) from error
    except ValueError as error:
        raise StagingError(
            file, f"is not readable as JSON ({error}).", f"Remove {target} and stage it again."
        ) from error
    if not isinstance(manifest, dict):
        raise StagingError(file, "is not a mapping.", f"Remove {target} and stage it again.")
    return manifest


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """JSON for people, with a line for each file."""
    # The last key, whose empty value can be cut off.
    last = {key: value for key, value in manifest.items() if key != "files"} | {"files": {}}
    own = json.dumps(last, indent=1, ensure_ascii=False)
    files = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in manifest["files"].items()]
    listed = "{\n" + ",\n".join(files) + "\n }" if files else "{}"
    return own.removesuffix("{}\n}") + listed + "\n}\n"


def list_files(
    directory: Path, known: Mapping[str, str] | None = None, *, read_only: bool = False
) -> dict[str, dict[str, Any]]:
    """Size, time of change and SHA-256 of the files below a directory, by their relative paths, in order.

    known: the files that count with their hashes, if somebody knows them; otherwise all are looked for and read.
    read_only: take the permissions to write away as well.
    """

    def entry(name: str) -> dict[str, Any]:
        path = f"{directory}/{name}"
        stat = os.stat(path)
        # One that other snapshots have as well may be another user's, and is read-only already.
        if read_only and stat.st_mode & 0o777 != 0o444:
            os.chmod(path, 0o444)
        sha256 = file_sha256(path) if known is None else known[name]
        return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256}

    names = sorted(files_below(directory) if known is None else known)
    return dict(zip(names, each(entry, names), strict=True))


def problems(target: Path, manifest: Mapping[str, Any], *, full: bool = False) -> dict[str, str]:
    """What no longer fits the manifest, by file.

    A file of which size and time of change are as they were is taken for unchanged, as rsync does, unless `full`.
    """
    expected: Mapping[str, Mapping[str, Any]] = manifest.get("files", {})

    def problem(name: str) -> str:
        path, entry = f"{target}/{name}", expected[name]
        try:
            stat = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return "is missing"
        if stat.st_size != entry["size"]:
            return f"has {stat.st_size} bytes, not {entry['size']}"
        if (full or stat.st_mtime_ns != entry.get("mtime_ns")) and file_sha256(path) != entry["sha256"]:
            return "has other content"
        return ""

    names = sorted(expected)
    # Of what a link points at others may have more. What an import leaves changes nothing for who uses it. Before the
    # files themselves, because NFS then has what it is asked of most of them.
    there = () if target.is_symlink() else (name for name, _entry in entries_below(target, is_litter))
    extra = sorted({*there} - {*names, MANIFEST})
    found = dict(zip(names, each(problem, names), strict=True)) | dict.fromkeys(extra, ADDED)
    return {name: what for name, what in found.items() if what}


def named(files: Mapping[str, str]) -> str:
    """Files and what is wrong with each, as text; of very many the first."""
    said = [f"{name} {what}" for name, what in files.items()]
    more = f", and {len(said) - NAMED_FILES} more" if len(said) > NAMED_FILES else ""
    return ", ".join(said[:NAMED_FILES]) + more


def protect(directory: Path, names: Iterable[str]) -> None:
    """Take the permissions to write away from a directory with its manifest, and from those in which its files lie."""
    (directory / MANIFEST).chmod(0o444)
    each(lambda name: (directory / name).chmod(0o555), [*directories_of(names), "."])
