# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of `argus stage` in the head's node, which goes on with a long item between calls, and shows its progress."""

from __future__ import annotations

import os
import tarfile
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from ansible import constants as C  # noqa: N812
from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.lock import ProgressReport
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import as_staging_errors
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import Opener, content_identity
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import Attachment
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import Answer, ProgramError
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import TIMEOUT_SECONDS, NodeAction

display = Display()
# The pause after a call without an answer, and how long a node may give none before the action gives up.
RETRY_PAUSE_SECONDS, MAX_SILENCE_SECONDS = 5.0, 300.0
# The slowest way of files from the machine through its engine to the shared root.
MIN_TRANSFER_BYTES_PER_SECOND = 10 << 20
# A snapshot is staged in one call, which may last so long on the slowest file system.
SNAPSHOT_TIMEOUT_SECONDS = 3600


class RefusedItemError(Exception):
    """An item was not staged; the findings say why."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.problem for finding in findings))
        self.findings = findings


class StagingAction(NodeAction):
    """The base of actions that stage items. `perform` sets task_arguments to the arguments of the module stage."""

    task_arguments: Mapping[str, Any]

    def stage_item(
        self, kind: str, item: object, attachment: Attachment | None = None, path: str = "", **request_fields: object
    ) -> dict[str, Any]:
        """Stage an item, however long it takes, and return the result of `argus stage`.

        If the result has the key files_needed, the item was not staged, and needs an attachment. Raises
        RefusedItemError, ProgramError and AnsibleConnectionFailure.
        attachment, path: a tar with the item's files, and where it is on the machine.
        """
        request = {"kind": kind, "item": item, "check": bool(self._task.check_mode), "detach": True}
        request |= request_fields | {name: self.task_arguments[name] for name in ("repair", "verify")}
        request |= {"endpoint": self.task_arguments["hf_endpoint"], "token": self.task_arguments["hf_token"]}
        request["attachment"] = attachment and asdict(attachment)
        seconds: float = SNAPSHOT_TIMEOUT_SECONDS if kind == "snapshot" else TIMEOUT_SECONDS
        seconds += attachment.size / MIN_TRANSFER_BYTES_PER_SECOND if attachment else 0
        answer = self.call_stage(request, seconds, path)
        last_answer_at, last_line = time.monotonic(), ""
        while answer.accepted and (reference := answer.result.get("reference")):
            path = str(answer.result.get("path"))
            last_line = show_progress(PurePosixPath(path).name, answer.result.get("progress"), last_line)
            try:
                answer = self.call_stage({"reference": reference, "path": path})
                last_answer_at = time.monotonic()
            except (AnsibleConnectionFailure, ProgramError) as error:
                if time.monotonic() - last_answer_at > MAX_SILENCE_SECONDS:
                    problem = f"the head's node has not answered for {MAX_SILENCE_SECONDS:.0f} s: {error}."
                    remedy = "Run it again: it continues, or waits for this one"
                    raise RefusedItemError(Finding("", problem, remedy)) from error
                time.sleep(RETRY_PAUSE_SECONDS)
        if not answer.accepted:
            raise RefusedItemError(*answer.findings)
        return {**answer.result, "changed": answer.changed}

    def call_stage(self, request: Mapping[str, Any], seconds: float = TIMEOUT_SECONDS, attachment: str = "") -> Answer:
        only_running = request.get("kind") != "snapshot"
        return self.call_verb("stage", request, seconds, only_running_node=only_running, attachment=attachment)

    def stage_with_files(
        self, kind: str, item: object, files: Mapping[str, Opener], hashes: Mapping[str, str], **request_fields: object
    ) -> dict[str, Any]:
        """Stage an item with files of the controller. files, hashes: openers and SHA-256 by path in the tar."""
        shell = self._connection._shell
        with tempfile.NamedTemporaryFile(dir=C.DEFAULT_LOCAL_TMP) as file:
            with as_staging_errors(Path(C.DEFAULT_LOCAL_TMP), "written"):
                attachment = Attachment(content_identity(hashes), write_tar(file.name, files))
            if not shell.tmpdir:
                self._make_tmp_path()
            try:
                path = shell.join_path(shell.tmpdir, "attachment")
                self._transfer_file(file.name, path)
                self._fixup_perms2((shell.tmpdir, path))
                return self.stage_item(kind, item, attachment, path, **request_fields)
            finally:
                # The machine's temporary directory may have no room for the files of all items.
                self._remove_tmp_path(shell.tmpdir)


def write_tar(path: str, files: Mapping[str, Opener]) -> int:
    """Write the files into a tar, and return their bytes."""
    size = 0
    with tarfile.open(path, "w") as archive:
        for name, opener in files.items():
            with opener() as file:
                member = tarfile.TarInfo(name)
                member.size = file.seek(0, os.SEEK_END)
                file.seek(0)
                archive.addfile(member, file)
            size += member.size
    return size


def show_progress(name: str, progress: object, last_line: str) -> str:
    """Show the progress of an item as a line, unless that is last_line, and return the line."""
    report = ProgressReport.from_json(progress)
    line = printable(f"{name}: {report.line()}", lines=False) if report else last_line
    if line != last_line:
        display.display(line)
    return line
