# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.job_log` on the controller: print the end of the log, then new lines as they appear."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.color import ANSIBLE_COLOR
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, printable_line
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.progress import progress_line
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.report import failure_lines, warning_lines
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.status import ENDED
from ansible_collections.argus.verl.plugins.plugin_utils.following import (
    NO_JOB,
    UNANSWERED_SECONDS,
    NewWarnings,
    announcement,
    given_up,
    unanswered,
)
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NODE, Node, given_node, job_info

display = Display()
# Each call costs the machine a third of a second of CPU, so even a log that always grows is read only this often.
POLL_SECONDS = 2.0
# How long a call waits for the log to grow.
WAIT_SECONDS = 8.0


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True
    node: Node

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(
            argument_spec={
                "submission_id": {"type": "str", "required": True},
                "lines": {"type": "int", "default": 100},
                "follow": {"type": "bool", "default": False},
                "node": {"type": "dict", "options": NODE},
            },
        )
        lines, follow = arguments.pop("lines"), arguments.pop("follow")
        self.node = given_node(arguments.pop("node"), task_vars)
        if not arguments["submission_id"]:
            return {"failed": True, "msg": NO_JOB}
        answer = job_info(self, self.node, {**arguments, "tail": lines})
        if answer.get("failed"):
            return answer
        job = JobInfo.from_json(answer["job"])
        title = printable(f"Job {job.submission_id}: {job.state}", lines=False)
        if job.log:
            shown = f"last {len(job.log)} lines" if len(job.log) > 1 else "last line"
            where = printable(f"{job.archive}/logs/driver.log", lines=False)
            display.display(f"\n{title}; {shown} of {where}")
        else:
            why = f": {printable(job.reason, lines=False)}" if job.reason else ""
            display.display(f"\n{title}, no log{'' if job.state in ENDED else ' yet'}{why}")
        show(job.log)
        if job.state in ENDED:
            show(failure_lines(job.failure))
        if not follow or job.state in ENDED:
            return {"changed": False, "job": answer["job"]}
        display.display(f"\n{announcement(job.submission_id)}\n")
        return self.follow(job, arguments)

    def follow(self, job: JobInfo, arguments: dict[str, Any]) -> dict[str, Any]:
        """Print new lines until the job has ended and its whole log was shown."""
        answered = time.monotonic()
        warnings = NewWarnings()
        shown = (job.state, "")
        while True:
            began = time.monotonic()
            since = {"log_position": job.log_position, "wait_timeout": WAIT_SECONDS}
            answer = job_info(self, self.node, {**arguments, **since})
            if answer.get("failed"):
                return answer
            job = JobInfo.from_json(answer["job"])
            show(job.log)
            show(warnings.lines(job))
            if job.state in ENDED and not job.log:
                break
            now = (job.state, job.notice)
            if now != shown and job.state not in ENDED:
                shown = now
                display.display(progress_line(job, answer["time"]))
            problem = unanswered(job)
            if not problem:
                answered = time.monotonic()
            elif time.monotonic() - answered > UNANSWERED_SECONDS:
                return {"failed": True, "job": answer["job"], "msg": given_up(job.submission_id, problem)}
            time.sleep(max(0.0, POLL_SECONDS - (time.monotonic() - began)))
        reason = f"  {printable(job.reason, lines=False)}" if job.reason and not job.failure else ""
        display.display(f"\n{progress_line(job, answer['time'])}{reason}")
        show([*failure_lines(job.failure), *warning_lines(job)])
        return {"changed": False, "job": answer["job"]}


def show(lines: Sequence[str]) -> None:
    if lines:
        display.display("\n".join(printable_line(line, ANSIBLE_COLOR) for line in lines))
