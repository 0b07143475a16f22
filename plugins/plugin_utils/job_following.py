# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result
from ansible_collections.argus.verl.plugins.plugin_utils.playbook_command import playbook_command
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import ProgramError

display = Display()
# Each call costs the machine a third of a second of CPU, so even a log that always grows is read only this often.
POLL_SECONDS = 2.0
# After how long a head that is gone is asked again.
GONE_SECONDS = 7.0
# A head may need a minute to restart. If it stays unreachable longer, following ends.
UNANSWERED_SECONDS = 120.0


def announcement(submission_id: str) -> str:
    """Shown before following begins: an interrupted ansible-playbook cannot show anything afterwards."""
    command = playbook_command("logs", {"submission_id": submission_id, "job_wait": True})
    first = f"Following {submission_id}. Ctrl-C stops following, the job continues. To follow it again:"
    return f"{printable(first, lines=False)}\n  {printable(command, lines=False)}"


class NewWarnings:
    """The warnings about a job that were not shown yet."""

    def __init__(self) -> None:
        self.shown: set[str] = set()

    def lines(self, job: JobInfo) -> list[str]:
        new = [warning for warning in job.warnings if warning.kind not in self.shown]
        self.shown |= {warning.kind for warning in new}
        return [printable(f"WARNING  {warning.text}", lines=False) for warning in new]


def unattended_reason(job: JobInfo) -> str:
    """Why nothing tells whether the job goes on, or "": neither head nor launcher answers, or it has no steward."""
    if job.problem and not job.goes_on:
        return job.problem
    return job.notice if job.unattended else ""


def answers(ask: Callable[[], Result], submission_id: str) -> Iterator[tuple[JobInfo, Result]]:
    """The answers about a job, each with the job, without an end.

    A head that is gone is waited for: its container may restart, or cluster_up.yml may repair it. Raises ProgramError
    when nothing has told for a while whether the job goes on.
    """
    answered = time.monotonic()
    while True:
        began = time.monotonic()
        try:
            answer = ask()
        except (AnsibleConnectionFailure, ProgramError) as error:
            if isinstance(error, ProgramError) and not error.may_answer_later:
                raise
            problem = one_line(error)
            display.display(f"{submission_id}  the head does not answer")
            time.sleep(GONE_SECONDS)
        else:
            job = JobInfo.from_json(answer["job"])
            yield job, answer
            problem = unattended_reason(job)
        if not problem:
            answered = time.monotonic()
        elif time.monotonic() - answered > UNANSWERED_SECONDS:
            raise ProgramError(give_up_text(submission_id, problem))
        time.sleep(max(0.0, POLL_SECONDS - (time.monotonic() - began)))


def give_up_text(submission_id: str, problem: str) -> str:
    """The message when following ends before the job does."""
    status = playbook_command("status", {"submission_id": submission_id})
    message = f"Stopped following {submission_id}, which may still be running: {problem}. Check it later: {status}"
    return printable(message, lines=False)
