# SPDX-License-Identifier: GPL-3.0-or-later
"""Users' code on the controller, which stage.yml copies to the shared root: its files, and those edited since then."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding, about
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import USER_CODE_DIR
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import is_ignored

# The most files that one source may have, and the most bytes of a file that are compared.
MAX_CODE_FILES, MAX_COMPARED_BYTES = 200, 1 << 20


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
