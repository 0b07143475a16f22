# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The staging modules on the controller: an operation that takes long runs detached, and its progress is shown."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.lock import ProgressReport
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.result import Status
from ansible_collections.argus.verl.plugins.plugin_utils.following import no_answer, node_is_gone
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import ProgramError, call, given_node

display = Display()
# Enough for a model of a terabyte over a slow line.
ASYNC_SECONDS = 7 * 86_400
# The first polls are soon, for an operation that takes a moment; later ones are as frequent as the lines of progress.
FIRST_POLL_SECONDS, POLL_SECONDS = 0.5, 5.0
# How long a machine may be unreachable before following ends; staging continues there.
UNANSWERED_SECONDS = 300.0


class FollowedStaging(ActionBase):  # type: ignore[misc]
    """Runs the module of the same name: in one call if it takes a moment, otherwise detached.

    A detached module survives a broken connection, and another run waits for it at its lock.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        return self.stage(dict(self._task.args), task_vars)

    def stage(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """The result of the module, however long it takes."""
        try:
            result = self.execute({**arguments, "defer": not self._task.check_mode}, task_vars)
            if result.get("status") != Status.DEFERRED:
                return result
            started = self.start(arguments, task_vars)
        except AnsibleConnectionFailure as error:
            # Not "unreachable", after which Ansible would run nothing more for this host: other items are staged.
            return unstaged(Finding("", no_answer(error, node_name(task_vars)), "Then run it again"))
        if "ansible_job_id" not in started:
            return started
        return self.follow(result["path"], started["ansible_job_id"], task_vars)

    def execute(
        self, arguments: dict[str, Any], task_vars: dict[str, Any] | None, module: str = "", *, detached: bool = False
    ) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            module or self._task.resolved_action, arguments, task_vars=task_vars, wrap_async=detached
        )
        gone = node_is_gone(answer, node_name(task_vars))
        return unstaged(Finding("", gone, "cluster_up.yml brings the cluster up")) if gone else answer

    def start(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        self._task.async_val = ASYNC_SECONDS
        try:
            return self.execute(arguments, task_vars, detached=True)
        finally:
            # Ansible must not poll as well.
            self._task.async_val = 0

    def follow(self, path: str, job: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Shows the progress every few seconds, and returns the result of the module."""
        name = PurePosixPath(path).name
        pause, answered, shown, line = FIRST_POLL_SECONDS, time.monotonic(), time.monotonic(), ""
        async_job = {"jid": job, "_async_dir": self.get_shell_option("async_dir", default="~/.ansible_async")}
        while True:
            time.sleep(pause)
            pause = min(2 * pause, POLL_SECONDS)
            try:
                polled = self.execute({**async_job, "mode": "status"}, task_vars, "ansible.legacy.async_status")
                answered = time.monotonic()
                if polled.get("finished"):
                    self.execute({**async_job, "mode": "cleanup"}, task_vars, "ansible.legacy.async_status")
                    return final_result(name, polled)
                if time.monotonic() - shown >= POLL_SECONDS:
                    shown = time.monotonic()
                    line = self.show_progress(name, path, task_vars, line)
            except (AnsibleConnectionFailure, KeyError) as error:
                if time.monotonic() - answered > UNANSWERED_SECONDS:
                    why = f"its machine has not answered for {UNANSWERED_SECONDS:.0f} s: {error}"
                    todo = "Run it again: it continues, or waits for this one"
                    return {"failed": True, "msg": f"{name}: {why}. {todo}"}

    def show_progress(self, name: str, path: str, task_vars: dict[str, Any] | None, shown: str) -> str:
        """Show the progress unless it is what was shown last, and return it."""
        progress = None
        with contextlib.suppress(ProgramError):
            answer = call(self, given_node(None, task_vars), "staged", {"progress_of": path})
            progress = ProgressReport.from_json(answer.result.get("progress"))
        line = f"{name}: {progress.line()}" if progress else shown
        if line != shown:
            display.display(line)
        return line


def node_name(task_vars: Mapping[str, Any] | None) -> str:
    return str((task_vars or {}).get("inventory_hostname"))


def unstaged(finding: Finding) -> dict[str, Any]:
    """The failure of an item whose module did not run."""
    finding = replace(finding, what=f"{finding.what}.")
    return {"failed": True, "msg": f"{finding.what} {finding.todo}", "finding": finding.as_dict()}


def final_result(name: str, polled: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a detached module that has ended."""
    if polled.get("failed") and "finding" not in polled:
        return ended_without_result(name, polled)
    return {key: value for key, value in polled.items() if key not in ("finished", "started")}


def ended_without_result(name: str, polled: Mapping[str, Any]) -> dict[str, Any]:
    """The failure of a detached module that was killed or crashed, instead of the message of Ansible's wrapper."""
    lines = str(polled.get("stderr") or "").strip().splitlines()
    finding = Finding(
        "",
        f"its process ended without a result{f'; its last line: {lines[-1]}' if lines else ', as if it was killed'}.",
        "Run it again: it continues with what was downloaded. The kernel's log shows whether memory ran out",
    )
    return {"failed": True, "msg": f"{name}: {finding.what} {finding.todo}", "finding": finding.as_dict()}
