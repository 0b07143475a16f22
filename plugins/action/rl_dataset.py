# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.rl_dataset` on the controller: files that are here are uploaded first."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import size_text
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.dataset.upload import Upload, UploadFile
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import (
    StagingError,
    changed_meanwhile,
    failure,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.lock import ProgressReport
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.result import Status
from ansible_collections.argus.verl.plugins.plugin_utils.staging import POLL_SECONDS, FollowedStaging
from ansible_collections.argus.verl.plugins.plugin_utils.upload import read, resolved

display = Display()
# What is sent at once. An interrupted upload continues after the last of them.
CHUNK_BYTES = 64 << 20


class ActionModule(FollowedStaging):
    def stage(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        inventory = str((task_vars or {}).get("inventory_dir") or Path.cwd())
        uploaded: Sequence[UploadFile] = ()
        try:
            arguments = resolved(arguments, inventory)
            if "upload" in arguments:
                problem = self.upload(arguments, task_vars)
                uploaded = Upload.of(arguments["upload"]).all
                if problem:
                    return with_own_paths(problem, uploaded)
        except (StagingError, OSError) as error:
            return {"failed": True, **failure(error)}
        self._task.args = arguments
        return with_own_paths(super().stage(arguments, task_vars), uploaded)

    def upload(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Bring the files of the controller to the shared root, unless the dataset exists; its result if it does.

        Files are read only if their size and time of change do not tell, or if the dataset does not exist.
        """
        upload, check = Upload.of(arguments["upload"]), self._task.check_mode
        if arguments.get("verify") != "full":
            first = self.execute({**arguments, "defer": True}, task_vars)
            if first.get("status") != Status.DEFERRED:
                if check and first.get("status") == Status.STAGED:
                    display.display(f"{arguments['name']}: would upload {size_text(upload.bytes)} of {upload.label}")
                return first
        upload = read(upload)
        arguments["upload"] = upload.to_json()
        # Also with all content known, it may exist already.
        known = self.execute({**arguments, "defer": True}, task_vars)
        if check or known.get("status") != Status.DEFERRED:
            return known
        base: dict[str, Any] = {name: arguments[name] for name in ("name", "shared_root") if name in arguments}
        for file in dict.fromkeys(upload.all):
            problem = self.send(file, base, upload.controller, task_vars)
            if problem:
                return problem
        return {}

    def send(
        self, file: UploadFile, base: dict[str, Any], controller: str, task_vars: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Send what has not arrived of a file; the result of the module if it fails."""
        started = shown = time.time()
        chunk: dict[str, Any] = {"sha256": file.sha256, "name": file.name}
        answer = self.execute({**base, "chunk": chunk}, task_vars)
        with tempfile.NamedTemporaryFile() as part, Path(file.path).open("rb") as source:
            while not answer.get("failed") and answer["received"] < file.size:
                done = int(answer["received"])
                self.cut(source, done, part)
                if time.time() - shown >= POLL_SECONDS:
                    shown = time.time()
                    progress = ProgressReport(
                        controller, 0, f"uploading {file.path}", done, file.size, started, max(shown, started + 0.01)
                    )
                    display.display(f"{base['name']}: {progress.line()}")
                answer = self.append({**base, "chunk": {**chunk, "offset": done}}, part.name, task_vars)
        return answer if answer.get("failed") else {}

    def cut(self, source: Any, offset: int, part: Any) -> None:
        """Write the part of a file that begins at an offset to another file."""
        source.seek(offset)
        part.seek(0)
        part.truncate()
        rest = CHUNK_BYTES
        while rest and (content := source.read(min(rest, 1 << 20))):
            part.write(content)
            rest -= len(content)
        part.flush()
        if rest == CHUNK_BYTES:
            raise changed_meanwhile(source.name)

    def append(self, arguments: dict[str, Any], part: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        directory = self._make_tmp_path()
        remote = self._connection._shell.join_path(directory, "chunk")
        try:
            self._transfer_file(part, remote)
            self._fixup_perms2((directory, remote))
            arguments["chunk"]["path"] = remote
            return self.execute(arguments, task_vars)
        finally:
            self._remove_tmp_path(directory, force=True)
            self._connection._shell.tmpdir = None


def with_own_paths(result: dict[str, Any], uploaded: Sequence[UploadFile]) -> dict[str, Any]:
    """A failure that names the files as they are called on the controller, not as they arrived."""
    if not result.get("failed"):
        return result

    def renamed(text: str) -> str:
        for file in uploaded:
            arrived = rf"/\S*/{file.sha256}/{re.escape(file.name)}"
            # A backslash in the replacement would have a meaning.
            text = re.sub(arrived, file.path.replace("\\", r"\\"), text) if file.sha256 else text
        return text

    finding = {name: renamed(str(text)) for name, text in (result.get("finding") or {}).items()}
    return {**result, "msg": renamed(str(result.get("msg", ""))), **({"finding": finding} if finding else {})}
