# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_node_drain`: run argus drain on the head until no job uses a worker, and show which ones do.

Documented in plugins/modules/ray_node_drain.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, sentence
from ansible_collections.argus.verl.plugins.module_utils.cluster.departure import hold_findings
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NODE, Node, given_node, task_result
from ansible_collections.argus.verl.plugins.plugin_utils.terminal import terminal

Result = dict[str, Any]

display = Display()
# How long one call waits: after Ctrl-C, it goes on for so long on the head.
CALL_SECONDS = 60.0
# What a call may take besides: Ray's command up to a minute, and a slow head 25 s for each of its answers.
LIMIT_SECONDS = 300.0
ARGUMENTS = {
    "node": {"type": "dict", "options": NODE},
    "worker": {"type": "str", "required": True},
    "node_id": {"type": "str", "required": True},
    "wait_timeout": {"type": "float", "default": 0},
    "ends_jobs": {"type": "bool", "default": False},
}


def begin_line(worker: str, jobs: Sequence[str], timeout: float) -> str:
    listed = ", ".join(jobs)
    return f"{worker} gets no new work. Waits for {listed}, up to {timeout:.0f} s. Ctrl-C ends only the waiting"


def change_line(worker: str, jobs: Sequence[str], waited: float) -> str:
    listed = ", ".join(jobs)
    return f"{worker} after {waited:.0f} s: {f'waits for {listed}' if jobs else 'no job uses it'}"


def show(text: str) -> None:
    display.display(sentence(printable(text, lines=False), terminal(display.columns).sentence_width))


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Result:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        node, timeout = given_node(arguments.pop("node"), task_vars), arguments.pop("wait_timeout")
        request = {**arguments, "check": self._task.check_mode}
        result = self.drain(node, request)
        if result.get("failed"):
            return result
        if self._task.check_mode or not result["jobs"] or not timeout:
            return self.with_findings(result, arguments, timeout)
        changed, jobs, waited = result["changed"], result["jobs"], 0.0
        show(begin_line(arguments["worker"], jobs, timeout))
        while jobs and waited < timeout:
            wait = {"held_by": jobs, "wait_timeout": min(CALL_SECONDS, timeout - waited)}
            result = self.drain(node, {**request, **wait})
            if result.get("failed"):
                return result
            waited += result["waited"]
            if set(result["jobs"]) != set(jobs):
                jobs = result["jobs"]
                show(change_line(arguments["worker"], jobs, waited))
        return self.with_findings({**result, "changed": changed, "waited": round(waited, 1)}, arguments, timeout)

    def with_findings(self, result: Result, arguments: Result, timeout: float) -> Result:
        """The result, with the jobs that still use the worker: errors, or warnings if they may be ended."""
        would_wait = timeout if self._task.check_mode else None
        worker, may_end = arguments["worker"], arguments["ends_jobs"]
        findings = hold_findings(worker, result["jobs"], result["waited"], may_end, would_wait)
        return {**result, "findings": [finding.as_dict() for finding in findings]}

    def drain(self, node: Node, request: Result) -> Result:
        seconds = LIMIT_SECONDS + request.get("wait_timeout", 0)
        # Only the head itself can be asked.
        return task_result(self, node, "drain", request, seconds, needs_node=True)
