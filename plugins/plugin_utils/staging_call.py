# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging by the program in the head's node: an item that takes long goes on there, and its progress is shown."""

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
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import reported
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.lock import ProgressReport
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import Opener, content_identity
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import Attachment
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import SECONDS, Answer, NodeAction, ProgramError

display = Display()
# How long to wait after a call that was not answered, and how long a node may give no answer before following ends.
PAUSE_SECONDS, UNANSWERED_SECONDS = 5.0, 300.0
# The slowest connection between an engine and its container, and the shared root behind it.
BYTES_PER_SECOND = 10 << 20
# Snapshots are staged in one call, on the slowest file system.
SNAPSHOT_SECONDS = 3600


class RefusedItemError(Exception):
    """An item is not staged; findings say why."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.what for finding in findings))
        self.findings = findings


class StagingCalls(NodeAction):
    """An action that runs the verb of the program which stages. given: the arguments of its task."""

    given: Mapping[str, Any]

    def item(
        self, kind: str, item: object, attachment: Attachment | None = None, path: str = "", **more: object
    ) -> dict[str, Any]:
        """The result for an item, however long it takes. attachment, path: the tar with its files on the machine.

        With files_needed, it cannot be staged without them. Raises RefusedItemError, ProgramError and
        AnsibleConnectionFailure.
        """
        request = {"kind": kind, "item": item, "check": bool(self._task.check_mode), "detach": True, **more}
        request |= {name: self.given[name] for name in ("repair", "verify")}
        request |= {"endpoint": self.given["hf_endpoint"], "token": self.given["hf_token"]}
        request["attachment"] = attachment and asdict(attachment)
        seconds = SNAPSHOT_SECONDS if kind == "snapshot" else SECONDS
        answer = self.stage(request, seconds + (attachment.size / BYTES_PER_SECOND if attachment else 0), path)
        answered, shown = time.monotonic(), ""
        while answer.done and (reference := answer.result.get("reference")):
            path = str(answer.result.get("path"))
            shown = show_progress(PurePosixPath(path).name, answer.result.get("progress"), shown)
            try:
                answer = self.stage({"reference": reference, "path": path})
                answered = time.monotonic()
            except (AnsibleConnectionFailure, ProgramError) as error:
                if time.monotonic() - answered > UNANSWERED_SECONDS:
                    what = f"its node has not answered for {UNANSWERED_SECONDS:.0f} s: {error}."
                    todo = "Run it again: it continues, or waits for this one"
                    raise RefusedItemError(Finding("", what, todo)) from error
                time.sleep(PAUSE_SECONDS)
        if not answer.done:
            raise RefusedItemError(*answer.findings)
        return {**answer.result, "changed": answer.changed}

    def stage(self, request: Mapping[str, Any], seconds: float = SECONDS, attachment: str = "") -> Answer:
        needs_node = request.get("kind") != "snapshot"
        return self.call("stage", request, seconds, needs_node=needs_node, attachment=attachment)

    def send(
        self, kind: str, item: object, files: Mapping[str, Opener], hashes: Mapping[str, str], **more: object
    ) -> dict[str, Any]:
        """The same with files of the controller, by their paths in the tar. hashes: their SHA-256."""
        shell = self._connection._shell
        with tempfile.NamedTemporaryFile(dir=C.DEFAULT_LOCAL_TMP) as file:
            with reported(Path(C.DEFAULT_LOCAL_TMP), "written"):
                attachment = Attachment(content_identity(hashes), pack(file.name, files))
            if not shell.tmpdir:
                self._make_tmp_path()
            try:
                path = shell.join_path(shell.tmpdir, "attachment")
                self._transfer_file(file.name, path)
                self._fixup_perms2((shell.tmpdir, path))
                return self.item(kind, item, attachment, path, **more)
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


def show_progress(name: str, progress: object, shown: str) -> str:
    """Show the progress unless it is what was shown last, and return it."""
    report = ProgressReport.from_json(progress)
    line = printable(f"{name}: {report.line()}", lines=False) if report else shown
    if line != shown:
        display.display(line)
    return line
