# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that stage something, on the controller: what takes long runs detached, and is followed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.staging.lock import progress_line
from ansible_collections.argus.verl.plugins.module_utils.staging.options import DEFERRED
from ansible_collections.argus.verl.plugins.plugin_utils.following import node_is_gone

display = Display()
# A model of a terabyte over a slow line.
ASYNC_SECONDS = 7 * 86_400
# The first looks are soon, for what takes a moment; later ones are as often as somebody wants to read a line.
FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.5, 5.0
# How long a machine may be out of reach before following ends; staging goes on there.
UNANSWERED_SECONDS = 300.0


class FollowedStaging(ActionBase):  # type: ignore[misc]
    """Runs the module of its own name: what is there or made in a moment in one call, everything else detached.

    Detached, it outlives a connection that breaks, and who runs it again waits for it by its lock.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        result = self.execute({**arguments, "defer": not self._task.check_mode}, task_vars)
        if result.get("status") != DEFERRED:
            return result
        started = self.start(arguments, task_vars)
        if "ansible_job_id" not in started:
            return started
        return self.follow(result["path"], started["ansible_job_id"], task_vars)

    def execute(
        self, arguments: dict[str, Any], task_vars: dict[str, Any] | None, module: str = "", *, detached: bool = False
    ) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            module or self._task.resolved_action, arguments, task_vars=task_vars, wrap_async=detached
        )
        gone = node_is_gone(answer, str((task_vars or {}).get("inventory_hostname")))
        if gone:
            finding = Finding("", f"{gone}.", "cluster_up.yml brings the cluster up")
            return {"failed": True, "msg": f"{gone}. {finding.todo}", "finding": finding.as_dict()}
        return answer

    def start(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        self._task.async_val = ASYNC_SECONDS
        try:
            return self.execute(arguments, task_vars, detached=True)
        finally:
            # Ansible must not poll as well.
            self._task.async_val = 0

    def follow(self, path: str, job: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Say every few seconds how far it is, and return what the module returned at its end."""
        name = PurePosixPath(path).name
        pause, answered, shown = FIRST_LOOK_SECONDS, time.monotonic(), time.monotonic()
        place = {"jid": job, "_async_dir": self.get_shell_option("async_dir", default="~/.ansible_async")}
        while True:
            time.sleep(pause)
            pause = min(2 * pause, LOOK_SECONDS)
            try:
                looked = self.execute({**place, "mode": "status"}, task_vars, "ansible.legacy.async_status")
                answered = time.monotonic()
                if looked.get("finished"):
                    self.execute({**place, "mode": "cleanup"}, task_vars, "ansible.legacy.async_status")
                    if looked.get("failed") and "finding" not in looked:
                        return ended_without_result(name, looked)
                    return {key: value for key, value in looked.items() if key not in ("finished", "started")}
                if time.monotonic() - shown >= LOOK_SECONDS:
                    shown = time.monotonic()
                    said = self.execute({"progress_of": path}, task_vars, "argus.verl.staged_info")["progress"]
                    if said:
                        display.display(f"{name}: {progress_line(said)}")
            except (AnsibleConnectionFailure, KeyError) as error:
                if time.monotonic() - answered > UNANSWERED_SECONDS:
                    why = f"its machine has not answered for {UNANSWERED_SECONDS:.0f} s: {error}"
                    return {"failed": True, "msg": f"{name}: {why}. Run it again: it goes on, or waits for this one"}


def ended_without_result(name: str, looked: Mapping[str, Any]) -> dict[str, Any]:
    """What a detached module that was killed or crashed fails with, instead of what Ansible's wrapper says."""
    said = str(looked.get("stderr") or "").strip().splitlines()
    finding = Finding(
        "",
        f"its process ended without a result, {f'and last said: {said[-1]}' if said else 'as if it was killed'}.",
        "Run it again: it goes on with what has come. The kernel's log tells whether memory ran out",
    )
    return {"failed": True, "msg": f"{name}: {finding.what} {finding.todo}", "finding": finding.as_dict()}
