# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

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
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import (
    Opener,
    content_identity,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import Attachment

from .program_answer import Answer, ProgramError
from .program_call import TIMEOUT_SECONDS, NodeAction

display = Display()
# How long to wait after a call that was not answered, and how long a node may give no answer before following ends.
RETRY_PAUSE_SECONDS, MAX_SILENCE_SECONDS = 5.0, 300.0
# The slowest connection between an engine and its container, and the shared root behind it.
MIN_TRANSFER_BYTES_PER_SECOND = 10 << 20
# Snapshots are staged in one call, on the slowest file system.
SNAPSHOT_TIMEOUT_SECONDS = 3600


class RefusedItemError(Exception):
    """An item is not staged; findings say why."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.problem for finding in findings))
        self.findings = findings


class StagingAction(NodeAction):
    """Calls `argus stage` in the head's node, and follows it to its end. task_arguments: those of the task."""

    task_arguments: Mapping[str, Any]

    def stage_item(
        self, kind: str, item: object, attachment: Attachment | None = None, path: str = "", **request_fields: object
    ) -> dict[str, Any]:
        """The result for an item, however long it takes. attachment, path: the tar with its files on the machine.

        With its key files_needed, the item cannot be staged without files. Raises RefusedItemError, ProgramError and
        AnsibleConnectionFailure.
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
        """The result for an item with files of the controller, by their paths in the tar. hashes: their SHA-256."""
        shell = self._connection._shell
        with tempfile.NamedTemporaryFile(dir=C.DEFAULT_LOCAL_TMP) as file:
            with as_staging_errors(Path(C.DEFAULT_LOCAL_TMP), "written"):
                attachment = Attachment(content_identity(hashes), pack(file.name, files))
            if not shell.tmpdir:
                self._make_tmp_path()
            try:
                path = shell.join_path(shell.tmpdir, "attachment")
                self._transfer_file(file.name, path)
                self._fixup_perms2((shell.tmpdir, path))
                return self.stage_item(kind, item, attachment, path, **request_fields)
            finally:
                # The files of all items need not fit there at the same time.
                self._remove_tmp_path(shell.tmpdir)


def pack(path: str, files: Mapping[str, Opener]) -> int:
    """Write a tar, and return the size of its files."""
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
    """Show a line of the progress unless it is the last one shown, and return it."""
    report = ProgressReport.from_json(progress)
    line = printable(f"{name}: {report.line()}", lines=False) if report else last_line
    if line != last_line:
        display.display(line)
    return line
