# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.job_fetch` on the controller: take the bundle, unpack what is new, clean up."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.status.state import describe


def differs(member: tarfile.TarInfo, target: Path) -> bool:
    if not target.is_file():
        return True
    there = target.stat()
    return there.st_size != member.size or int(there.st_mtime) != int(member.mtime)


def extract(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """One file, whole or not at all."""
    content = tar.extractfile(member)
    if content is None:
        raise ValueError(f"the bundle holds {member.name!r} without content")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.fetching")
    with content, temporary.open("wb") as file:
        shutil.copyfileobj(content, file)
    os.utime(temporary, (member.mtime, member.mtime))
    temporary.replace(target)


def unpack(bundle: str, target: Path, change: bool) -> int:
    """Extract what is new or changed; how many files that are.

    Raises ValueError, with nothing extracted, when the bundle is none of ours. tarfile's own filter for that came
    with Python 3.11.4; what is packed here needs less: files, with names below the archive.
    """
    with tarfile.open(bundle) as tar:
        members = tar.getmembers()
        for member in members:
            name = PurePosixPath(member.name)
            if not member.isfile() or name.is_absolute() or ".." in name.parts:
                raise ValueError(f"the bundle holds {member.name!r}, which is no file of an archive")
        changed = [member for member in members if differs(member, target / member.name)]
        if change:
            for member in changed:
                extract(tar, member, target / member.name)
    return len(changed)


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        result: dict[str, Any] = self._execute_module("argus.verl.job_fetch", arguments, task_vars=task_vars)
        if result.get("failed"):
            return result
        remote = result.pop("bundle")
        target = Path(arguments["dest"]).expanduser().resolve() / arguments["submission_id"]
        try:
            with tempfile.NamedTemporaryFile(suffix=".tar.gz") as local:
                self._connection.fetch_file(remote, local.name)
                files = unpack(local.name, target, change=not self._task.check_mode)
        finally:
            self._remove_tmp_path(remote, force=True)
        return {
            **result,
            "changed": bool(files),
            "path": str(target),
            "files": files,
            "job": describe(Archive(target), None, tail=0),
        }
