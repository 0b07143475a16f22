# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The users' own code on the controller, compared with what a job uses. An edited file is used once it is staged."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding, about
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import USER_CODE
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import is_ignored

MOST_FILES, FILE_BYTES = 200, 1 << 20


def unstaged(sources: Sequence[str], used: Mapping[str, str]) -> list[Finding]:
    """A warning if a file that a job uses is older than its source.

    sources: files and directories of the controller, as `staging_user_code` names them.
    used: the SHA-256 of the files of the job, by their paths relative to the shared root.
    """
    if not used:
        return []
    differ = [
        str(file) for source in sources for name, file in targets(source) if name in used and used[name] != sha256(file)
    ]
    if not differ:
        return []
    what = f"is not the same as on this machine: {', '.join(sorted(differ))} changed after stage.yml copied it"
    return [about("files", what, "run stage.yml, or nothing if the copy is what you want", WARNING)]


def targets(source: str) -> Iterator[tuple[str, Path]]:
    """The files of a source by the paths that they get: of DIR/, those of its contents."""
    for name, file in itertools.islice(every_file(source), MOST_FILES):
        yield f"{USER_CODE}/{name}", file


def every_file(source: str) -> Iterator[tuple[str, Path]]:
    """The same, relative to the directory of the users' own code."""
    top = Path(source)
    if top.is_file():
        yield top.name, top
        return
    base = top if source.endswith("/") else top.parent
    for file in sorted(top.rglob("*")):
        if file.is_file() and not is_ignored(str(file.relative_to(base))):
            yield str(file.relative_to(base)), file


def sha256(file: Path) -> str:
    """The hash of a file; of one that cannot be read, none."""
    try:
        with file.open("rb") as content:
            return hashlib.sha256(content.read(FILE_BYTES)).hexdigest()
    except OSError:
        return ""
