# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.job_fetch` on the controller: fetch the bundle, unpack new files, remove the bundle."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.job.submission_id import SUBMISSION_ID
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.status.state import describe
from ansible_collections.argus.verl.plugins.plugin_utils.following import no_such_id


def differs(member: tarfile.TarInfo, target: Path) -> bool:
    if not target.is_file():
        return True
    there = target.stat()
    return there.st_size != member.size or int(there.st_mtime) != int(member.mtime)


def extract(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Extract one file, completely or not at all."""
    content = tar.extractfile(member)
    if content is None:
        raise ValueError(f"the bundle has no content for {member.name!r}")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.fetching")
    with content, temporary.open("wb") as file:
        shutil.copyfileobj(content, file)
    os.utime(temporary, (member.mtime, member.mtime))
    temporary.replace(target)


def unpack(bundle: str, target: Path, change: bool) -> int:
    """Extract new and changed files. Returns their number.

    Raises ValueError before anything is extracted if the bundle holds anything but regular files below the archive:
    the machine that packed it is trusted less than the controller.
    """
    with tarfile.open(bundle) as tar:
        members = tar.getmembers()
        for member in members:
            name = PurePosixPath(member.name)
            if not member.isfile() or name.is_absolute() or ".." in name.parts:
                raise ValueError(f"the bundle holds {member.name!r}, which is not a regular file below the archive")
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
        if not SUBMISSION_ID.fullmatch(str(arguments.get("submission_id") or "")):
            # The id becomes a path on the controller.
            return {"failed": True, "changed": False, "msg": no_such_id(arguments.get("submission_id"))}
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
            "job": describe(Archive(target), None, tail=0).to_json(),
        }
