# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows a job, for its state or its log: polls the head, and goes on while the head restarts."""

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
# The shortest time between calls, even of a log that always grows: each costs the machine 0.3 s of CPU.
POLL_SECONDS = 2.0
# The pause after a call that the head did not answer.
RETRY_PAUSE_SECONDS = 7.0
# Following ends if the job's state is unknown for so long. A head needs up to a minute to restart.
UNANSWERED_SECONDS = 120.0


def announcement(submission_id: str) -> str:
    """The text to show before following begins: after Ctrl-C, ansible-playbook cannot show anything."""
    command = playbook_command("logs", {"submission_id": submission_id, "job_wait": True})
    first = f"Following {submission_id}. Ctrl-C stops following, the job continues. To follow it again:"
    return f"{printable(first, lines=False)}\n  {printable(command, lines=False)}"


class NewWarnings:
    """Remembers which warnings about a job were shown."""

    def __init__(self) -> None:
        self.shown: set[str] = set()

    def lines(self, job: JobInfo) -> list[str]:
        """The warnings that were not returned before."""
        new = [warning for warning in job.warnings if warning.kind not in self.shown]
        self.shown |= {warning.kind for warning in new}
        return [printable(f"WARNING  {warning.text}", lines=False) for warning in new]


def unattended_reason(job: JobInfo) -> str:
    """Why it is unknown whether a job goes on: neither head nor launcher answers, or no steward runs; "" if known."""
    if job.problem and not job.goes_on:
        return job.problem
    return job.notice if job.unattended else ""


def poll_job(ask: Callable[[], Result], submission_id: str) -> Iterator[tuple[JobInfo, Result]]:
    """Ask for a job again and again, and yield it with each answer; the caller decides when to end.

    If the head does not answer, it is asked again: its container may restart, or cluster_up.yml may repair it. Raises
    ProgramError if it was unknown for UNANSWERED_SECONDS whether the job goes on.
    """
    last_known_at = time.monotonic()
    while True:
        began = time.monotonic()
        try:
            answer = ask()
        except (AnsibleConnectionFailure, ProgramError) as error:
            if isinstance(error, ProgramError) and not error.may_answer_later:
                raise
            problem = one_line(error)
            display.display(f"{submission_id}  the head does not answer")
            time.sleep(RETRY_PAUSE_SECONDS)
        else:
            job = JobInfo.from_json(answer["job"])
            yield job, answer
            problem = unattended_reason(job)
        if not problem:
            last_known_at = time.monotonic()
        elif time.monotonic() - last_known_at > UNANSWERED_SECONDS:
            raise ProgramError(give_up_text(submission_id, problem))
        time.sleep(max(0.0, POLL_SECONDS - (time.monotonic() - began)))


def give_up_text(submission_id: str, problem: str) -> str:
    """The message when following ends before the job does."""
    status = playbook_command("status", {"submission_id": submission_id})
    message = f"Stopped following {submission_id}, which may still be running: {problem}. Check it later: {status}"
    return printable(message, lines=False)
