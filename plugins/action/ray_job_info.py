# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_job_info`: get jobs by `argus status` on the head, and show them, or the log of one as it grows.

Documented in plugins/modules/ray_job_info.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.utils.color import ANSIBLE_COLOR
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.archive.status import ENDED
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, printable_line
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.report import (
    failure_lines,
    progress_line,
    warning_lines,
)
from ansible_collections.argus.verl.plugins.modules.ray_job_info import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options, failure
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import (
    NO_ID_MESSAGE,
    NewWarnings,
    announcement,
    poll_job,
    status_report,
)
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NodeAction
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report
from ansible_collections.argus.verl.plugins.plugin_utils.shell import shell_line

display = Display()
# How long a call waits for the log to grow.
LOG_WAIT_SECONDS = 8.0
# The options that select lines of a log, with their words in the title above them.
SELECTORS = {"rank": "rank ", "attempt": "attempt "}


class ActionModule(NodeAction):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        shown = arguments.pop("show")
        is_log = shown in ("log", "follow")
        if is_log and not arguments["submission_id"]:
            return failure(NO_ID_MESSAGE)
        if shown == "follow" and arguments["attempt"]:
            return failure("The lines of one attempt cannot be followed. Leave job_wait or job_log_attempt out")
        # The head may have an earlier version of the program, which lacks some of these options.
        arguments = {name: value for name, value in arguments.items() if value or name not in SELECTORS}
        answer = self.job_info(arguments)
        if shown == "status":
            print_report(**status_report(answer, self.node.cluster))
        if shown == "shell":
            job = JobInfo.from_json(answer["job"])
            # Jobs can write to their archives.
            if job.state in ENDED or job.driver_host not in variables["groups"]["workers"]:
                return failure(f"{job.submission_id} is {job.state}: only a job that runs has a shell")
            host = variables["hostvars"][job.driver_host]
            display.display(shell_line(job.submission_id, str(job.driver_host), self.node, host))
        if shown == "json":
            display.display(json.dumps(without_infinite_numbers(answer)))
        if not is_log:
            return answer
        job = JobInfo.from_json(answer["job"])
        show_log(job, arguments)
        return self.follow(job, arguments) if shown == "follow" and job.state not in ENDED else answer

    def follow(self, begin: JobInfo, arguments: dict[str, Any]) -> Result:
        """Show new lines of the log until the job has ended and its whole log was shown."""
        display.display(f"\n{announcement(begin.submission_id)}\n")
        position = begin.log_position
        shown = (begin.state, "", False)
        warnings = NewWarnings()

        def ask() -> Result:
            of_job = {"submission_id": begin.submission_id, "log_position": position, "first_errors": False}
            return self.job_info({**arguments, **of_job, "wait_timeout": LOG_WAIT_SECONDS})

        for job, answer in poll_job(ask, begin.submission_id):
            is_all_read, position = position == job.log_position, job.log_position
            show(job.log)
            show(warnings.lines(job))
            if job.state in ENDED and is_all_read:
                break
            now = (job.state, job.notice, job.head_away_for is not None)
            if now != shown and job.state not in ENDED:
                shown = now
                display.display(progress_line(job, answer["time"]))
        reason = f"  {printable(job.reason, lines=False)}" if job.reason and not job.failure else ""
        display.display(f"\n{progress_line(job, answer['time'])}{reason}")
        show([*failure_lines(job.failure), *warning_lines(job)])
        return answer


def without_infinite_numbers(value: Any) -> Any:
    """A value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: without_infinite_numbers(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_infinite_numbers(item) for item in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None


def show_log(job: JobInfo, options: Mapping[str, Any]) -> None:
    """Show the selected lines of a log, or its last ones, below a title."""
    title = printable(f"Job {job.submission_id}: {job.state}", lines=False)
    selected = ", ".join(f"{word}{options[name]}" for name, word in SELECTORS.items() if options.get(name))
    selection = f" with {printable(selected, lines=False)}" if selected else ""
    if options["first_errors"]:
        lines = f"{'first error of each process' if job.log else 'no error at the end'}{selection}"
        display.display(f"\n{title}; {lines} of {printable(f'{job.archive}/logs/driver.log', lines=False)}")
    elif job.log or selected:
        lines = f"last {len(job.log)} lines" if len(job.log) != 1 else "last line"
        lines += selection
        display.display(f"\n{title}; {lines} of {printable(f'{job.archive}/logs/driver.log', lines=False)}")
    else:
        reason = f": {printable(job.reason, lines=False)}" if job.reason else ""
        display.display(f"\n{title}, no log{'' if job.state in ENDED else ' yet'}{reason}")
    show(job.log)
    if job.state in ENDED:
        show(failure_lines(job.failure))


def show(lines: Sequence[str]) -> None:
    if lines:
        display.display("\n".join(printable_line(line, ANSIBLE_COLOR) for line in lines))
