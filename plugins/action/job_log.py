# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.job_log` on the controller: print the log, look again, print what is new."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.color import ANSIBLE_COLOR
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import ENDED
from ansible_collections.argus.verl.plugins.module_utils.status.progress import progress_line
from ansible_collections.argus.verl.plugins.module_utils.status.report import readable
from ansible_collections.argus.verl.plugins.plugin_utils.following import (
    NO_JOB,
    UNANSWERED_SECONDS,
    announcement,
    given_up,
    gives_no_sign,
)

display = Display()
# Each look costs the machine a third of a second of CPU: a log that always grows is looked at this often.
LOOK_SECONDS = 2.0
# How long a look waits for the log to grow.
WAIT_SECONDS = 8.0


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(
            argument_spec={
                "submission_id": {"type": "str", "required": True},
                "lines": {"type": "int", "default": 100},
                "follow": {"type": "bool", "default": False},
                "shared_root": {"type": "path", "default": "/private"},
                "address": {"type": "str", "default": "http://127.0.0.1:8265"},
                "token_path": {"type": "path", "no_log": False},
            },
        )
        lines, follow = arguments.pop("lines"), arguments.pop("follow")
        if not arguments["submission_id"]:
            return {"failed": True, "msg": NO_JOB}
        looked = self.look({**arguments, "tail": lines}, task_vars)
        if looked.get("failed"):
            return looked
        job = looked["job"]
        title = f"Job {job['submission_id']}: {job['state']}"
        if job["log"]:
            shown = f"the last {len(job['log'])} lines" if len(job["log"]) > 1 else "the last line"
            display.display(f"\n{title}; {shown} of {job['archive']}/logs/driver.log")
        else:
            why = f": {job['reason']}" if job["reason"] else ""
            display.display(f"\n{title}, without a log{'' if job['state'] in ENDED else ' yet'}{why}")
        show(job["log"])
        if not follow or job["state"] in ENDED:
            return {"changed": False, "job": job}
        display.display(f"\n{announcement(job['submission_id'])}\n")
        return self.follow(job, arguments, task_vars)

    def look(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module("argus.verl.ray_job_info", arguments, task_vars=task_vars)
        return answer

    def follow(
        self, job: dict[str, Any], arguments: dict[str, Any], task_vars: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Print what is new until the job has ended and all of its log was shown."""
        answered = time.monotonic()
        state = job["state"]
        while True:
            began = time.monotonic()
            place = {"log_position": job["log_position"], "wait_timeout": WAIT_SECONDS}
            looked = self.look({**arguments, **place}, task_vars)
            if looked.get("failed"):
                return looked
            job = looked["job"]
            show(job["log"])
            if job["state"] in ENDED and not job["log"]:
                break
            if job["state"] != state and job["state"] not in ENDED:
                state = job["state"]
                display.display(progress_line(job, looked["time"]))
            if not gives_no_sign(job):
                answered = time.monotonic()
            elif time.monotonic() - answered > UNANSWERED_SECONDS:
                return {"failed": True, "job": job, "msg": given_up(job["submission_id"], job["problem"])}
            time.sleep(max(0.0, LOOK_SECONDS - (time.monotonic() - began)))
        display.display(f"\n{progress_line(job, looked['time'])}{'  ' + job['reason'] if job['reason'] else ''}")
        return {"changed": False, "job": job}


def show(lines: list[str]) -> None:
    if lines:
        display.display("\n".join(readable(line, ANSIBLE_COLOR) for line in lines))
