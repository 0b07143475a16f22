# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging by the program in the head's node: an item that takes long goes on there, and its progress is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.lock import ProgressReport
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import SECONDS, Answer, NodeAction, ProgramError

display = Display()
# How long to wait after a call that was not answered, and how long a node may give no answer before following ends.
PAUSE_SECONDS, UNANSWERED_SECONDS = 5.0, 300.0
# The slowest connection between an engine and its container, and the shared root behind it.
BYTES_PER_SECOND = 10 << 20


class RefusedItemError(Exception):
    """An item is not staged; findings say why."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.what for finding in findings))
        self.findings = findings


class StagingCalls(NodeAction):
    """An action that runs the verb of the program which stages. given: the arguments of its task."""

    given: Mapping[str, Any]

    def item(
        self,
        kind: str,
        item: object,
        attachments: Sequence[str] = (),
        seconds: float = SECONDS,
        size: int = 0,
        **more: object,
    ) -> dict[str, Any]:
        """The result for an item, however long it takes. attachments, size: its files on the machine, in bytes.

        With files_needed, it cannot be staged without them. Raises RefusedItemError, ProgramError and
        AnsibleConnectionFailure.
        """
        request = {"kind": kind, "item": item, "check": bool(self._task.check_mode), "detach": True, **more}
        request |= {name: self.given[name] for name in ("repair", "verify")}
        request |= {"endpoint": self.given["hf_endpoint"], "token": self.given["hf_token"]}
        request["attached"] = bool(attachments)
        answer = self.stage(request, seconds + size / BYTES_PER_SECOND, attachments)
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

    def stage(self, request: Mapping[str, Any], seconds: float = SECONDS, attachments: Sequence[str] = ()) -> Answer:
        needs_node = request.get("kind") != "snapshot"
        return self.call("stage", request, seconds, needs_node=needs_node, attachments=attachments)

    @contextmanager
    def sent(self, files: Sequence[str]) -> Iterator[list[str]]:
        """The paths of files of the controller on the machine, in a temporary directory."""
        shell, paths = self._connection._shell, []
        if not shell.tmpdir:
            self._make_tmp_path()
        try:
            for number, file in enumerate(files):
                paths.append(shell.join_path(shell.tmpdir, f"attachment-{number}"))
                self._transfer_file(file, paths[-1])
            self._fixup_perms2((shell.tmpdir, *paths))
            yield paths
        finally:
            # The files of all items need not fit there at the same time.
            self._remove_tmp_path(shell.tmpdir)


def show_progress(name: str, progress: object, shown: str) -> str:
    """Show the progress unless it is what was shown last, and return it."""
    report = ProgressReport.from_json(progress)
    line = printable(f"{name}: {report.line()}", lines=False) if report else shown
    if line != shown:
        display.display(line)
    return line
