# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging by the program in the head's node: an item that takes long goes on there, and its progress is shown."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import StagingError
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.lock import ProgressReport
from ansible_collections.argus.verl.plugins.plugin_utils.following import no_answer
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import (
    SECONDS,
    Answer,
    Node,
    ProgramError,
    call,
    given_node,
)

display = Display()
# How long to wait after a call that was not answered, and how long a node may give no answer before following ends.
PAUSE_SECONDS, UNANSWERED_SECONDS = 5.0, 300.0
# The slowest connection between an engine and its container, and the shared root behind it.
BYTES_PER_SECOND = 10 << 20


class StagingAction(ActionBase):  # type: ignore[misc]
    """Runs a verb of the program; no module is sent. kind: of its items."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    kind = ""
    node: Node

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = {name: value for name, value in self._task.args.items() if value is not None}
        self.node = given_node(arguments.pop("node", None), task_vars)
        try:
            return self.stage(arguments, task_vars or {})
        except StagingError as error:
            return failed(error.finding)
        except ProgramError as error:
            return failed(Finding("", str(error), ""))
        except AnsibleConnectionFailure as error:
            # Not "unreachable", after which Ansible would run nothing more for this host: other items are staged.
            return failed(Finding("", f"{no_answer(error, self.node.machine or self.node.name)}.", "Then run it again"))

    def stage(self, arguments: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        return self.staged(arguments)

    def staged(self, item: Mapping[str, Any], attachments: Sequence[str] = (), size: int = 0) -> dict[str, Any]:
        """The result for an item, however long it takes. attachments, size: its files on the machine, in bytes.

        With files_needed, it cannot be staged without them. Raises ProgramError and AnsibleConnectionFailure.
        """
        check = bool(self._task.check_mode)
        request = {"item": {**item, "kind": self.kind}, "check": check, "detach": True, "attached": bool(attachments)}
        answer = self.call(request, SECONDS + size / BYTES_PER_SECOND, attachments)
        answered, shown = time.monotonic(), ""
        while answer.done and (reference := answer.result.get("reference")):
            path = str(answer.result.get("path"))
            shown = show_progress(PurePosixPath(path).name, answer.result.get("progress"), shown)
            try:
                answer = self.call({"reference": reference, "path": path})
                answered = time.monotonic()
            except (AnsibleConnectionFailure, ProgramError) as error:
                if time.monotonic() - answered > UNANSWERED_SECONDS:
                    why = f"its node has not answered for {UNANSWERED_SECONDS:.0f} s: {error}."
                    return failed(Finding("", why, "Run it again: it continues, or waits for this one"))
                time.sleep(PAUSE_SECONDS)
        if not answer.done:
            return failed(*answer.findings)
        return {**answer.result, "changed": answer.changed}

    def call(self, request: Mapping[str, Any], seconds: float = SECONDS, attachments: Sequence[str] = ()) -> Answer:
        return call(self, self.node, "stage", request, seconds, needs_node=True, attachments=attachments)

    def sent(self, files: Sequence[str]) -> list[str]:
        """The paths of files of the controller on the machine, in the temporary directory of this task."""
        shell, paths = self._connection._shell, []
        if not shell.tmpdir:
            self._make_tmp_path()
        for number, file in enumerate(files):
            paths.append(shell.join_path(shell.tmpdir, f"attachment-{number}"))
            self._transfer_file(file, paths[-1])
        self._fixup_perms2((shell.tmpdir, *paths))
        return paths


def show_progress(name: str, progress: object, shown: str) -> str:
    """Show the progress unless it is what was shown last, and return it."""
    report = ProgressReport.from_json(progress)
    line = f"{printable(name, lines=False)}: {report.line()}" if report else shown
    if line != shown:
        display.display(line)
    return line


def failed(*findings: Finding) -> dict[str, Any]:
    """The result of an item that was refused. finding: the first one, for tables."""
    texts = [f"{each.where and f'{each.where}: '}{each.what} {each.todo}" for each in findings]
    message = printable("\n".join(texts).rstrip()) or "The program has given no reason."
    shown = [{name: printable(text) for name, text in each.as_dict().items()} for each in findings]
    return {"failed": True, "changed": False, "msg": message, "finding": shown[0] if shown else {}, "findings": shown}
