# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of `argus.verl.ray_node_drain`: it shows for which jobs a node is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, sentence
from ansible_collections.argus.verl.plugins.plugin_utils.terminal import terminal

Result = dict[str, Any]

display = Display()
# How long one call of the module waits: after Ctrl-C, it goes on for so long on the head.
CALL_SECONDS = 60.0


def begin_line(node: str, jobs: Sequence[str], timeout: float) -> str:
    listed = ", ".join(jobs)
    return f"{node} gets no new work. Waits for {listed}, up to {timeout:.0f} s. Ctrl-C ends only the waiting"


def change_line(node: str, jobs: Sequence[str], waited: float) -> str:
    listed = ", ".join(jobs)
    return f"{node} after {waited:.0f} s: {f'waits for {listed}' if jobs else 'no job uses it'}"


def show(text: str) -> None:
    display.display(sentence(printable(text, lines=False), terminal(display.columns).sentence_width))


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Result:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        node, timeout = str(arguments["node"]), float(arguments.pop("wait_timeout", 0))
        result = self.call(arguments, task_vars)
        if self._task.check_mode or result.get("failed") or not result["jobs"] or not timeout:
            return result
        changed, jobs, waited = result["changed"], result["jobs"], 0.0
        show(begin_line(node, jobs, timeout))
        while jobs and waited < timeout:
            wait = {"held_by": jobs, "wait_timeout": min(CALL_SECONDS, timeout - waited)}
            result = self.call({**arguments, **wait}, task_vars)
            if result.get("failed"):
                return result
            waited += result["waited"]
            if set(result["jobs"]) != set(jobs):
                jobs = result["jobs"]
                show(change_line(node, jobs, waited))
        return {**result, "changed": changed, "waited": round(waited, 1)}

    def call(self, arguments: Result, task_vars: dict[str, Any] | None) -> Result:
        result: Result = self._execute_module("argus.verl.ray_node_drain", arguments, task_vars=task_vars)
        return result
