# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs on the terminal: reports, the commands that messages suggest, and jobs and logs that are followed."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.archive.status import ENDED, JobState
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo, JobList
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.job_list_report import jobs_report
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.report import field_line, job_report
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.api import slowness
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import ProgramError
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import table_width

# The commands that messages suggest: for the inventories of this run, with playbooks named as in this run.
#
# Where the command argus runs them, they are its verbs.

COLLECTION = "argus.verl."
# Set by the command argus: the options of its inventory.
ARGUS = "ARGUS_COMMAND"
# Verbs and playbooks with different names, variables that are arguments, and options without a value.
VERBS = {"debug_bundle": "evidence"}
PLAYBOOKS = {"report": "fetch"}
ARGUMENTS = ("submission_id", "jobspec", "set")
OPTIONS = {"job_wait": "--follow"}


def inventory_arguments(sources: Sequence[str], default: Sequence[str]) -> list[str]:
    """The -i options of this run. Ansible makes their paths absolute, and fills in its default if there were none."""
    if list(sources) == list(default):
        return []
    directory = Path.cwd()
    arguments = []
    for source in sources:
        path = Path(source)
        is_below = path.is_absolute() and path.is_relative_to(directory)
        arguments += ["-i", os.path.relpath(path, directory) if is_below else source]
    return arguments


def sibling_playbook(name: str, ran: Sequence[str]) -> str:
    """The playbook of that name, written in the same way as the playbook that runs."""
    for playbook in ran:
        if playbook.startswith(COLLECTION):
            return f"{COLLECTION}{name}"
        if playbook.endswith((".yml", ".yaml")) and Path(playbook).parent.name == "playbooks":
            return str(Path(playbook).with_name(f"{name}.yml"))
    return f"playbooks/{name}.yml"


def playbook_command(name: str, variables: Mapping[str, Any]) -> str:
    """The command that runs a playbook of the collection for the inventories of this run.

    variables: of the playbook; under the command argus, its arguments and options.
    """
    if ARGUS in os.environ:
        words = ["argus", VERBS.get(name, name)]
        for key in ARGUMENTS:
            words += str(variables.get(key, "")).split(",") if variables.get(key) else []
        for key, value in variables.items():
            if key not in ARGUMENTS:
                option = OPTIONS.get(key, f"--{key.replace('_', '-')}")
                words += [option, *([] if isinstance(value, bool) else [str(value)])]
        return " ".join([shlex.join(words), *filter(None, [os.environ[ARGUS]])])
    arguments = context.CLIARGS
    ran = arguments.get("args") or ()
    words = [
        "ansible-playbook",
        *inventory_arguments(arguments.get("inventory") or (), constants.DEFAULT_HOST_LIST if arguments else ()),
        sibling_playbook(PLAYBOOKS.get(name, name), ran if isinstance(ran, (list, tuple)) else ()),
    ]
    for key, value in variables.items():
        words += ["-e", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join(words)


# Filters: reports on jobs, and the commands for a job.

# The commands for a job: the playbook, and its variables besides the job's id.
COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Status": ("status", {}),
    "Follow": ("logs", {"job_wait": True}),
    "Log": ("logs", {}),
    "Stop": ("stop", {}),
    "Resubmit": ("resubmit", {}),
    "Evidence": ("debug_bundle", {}),
    "Fetch": ("fetch", {}),
    "Export": ("export", {}),
}


def command_lines(submission_id: str, *names: str, checkpoint: int | None = None) -> list[str]:
    """checkpoint: the step of the job's last complete checkpoint, from which the next job resumes."""
    lines = []
    for name in names:
        playbook, variables = COMMANDS[name]
        if name == "Resubmit" and checkpoint:
            variables = {"set": f"resume_from={submission_id}"}
        command = playbook_command(playbook, {"submission_id": submission_id, **variables})
        lines.append(field_line(name, command))
    return lines


def job_commands(submission_id: str, state: str, checkpoint: int | None = None) -> list[str]:
    """The lines with the commands for a job in a given state; `checkpoint` as for commands."""
    if state in ENDED:
        resumable = checkpoint if state != JobState.SUCCEEDED else None
        export = ["Export"] if checkpoint else []
        return command_lines(submission_id, "Status", "Log", "Resubmit", "Fetch", *export, checkpoint=resumable)
    return command_lines(submission_id, "Status", "Follow", "Stop", "Evidence", "Fetch")


def job_status(result: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The arguments of argus.verl.report for the result of ray_job_info: one job, or the latest ones."""
    shown = job_or_jobs(result, cluster)
    return {**shown, "text": [*slowness(result.get("slow", 0)), *shown["text"]]}


def job_or_jobs(result: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    if "job" in result:
        job = JobInfo.from_json(result["job"])
        names = ["Log", "Resubmit", "Fetch"] if job.state in ENDED else ["Follow", "Stop", "Fetch"]
        # A job that is running may remove its checkpoints while they are read.
        names += ["Export"] if job.state in ENDED and (job.checkpoints or job.models) else []
        if result.get("registered") is False:
            # As after cluster_down: resubmit would refuse it.
            names = [name for name in names if name != "Resubmit"]
        shown = command_lines(job.submission_id, *names, checkpoint=job.resumable)
        return job_report(job, result["time"], shown, table_width()).to_json()
    return jobs_report(
        JobList.from_json(result),
        result["time"],
        cluster=cluster,
        status_command=playbook_command("status", {"submission_id": "ID"}),
        submit_command=playbook_command("submit", {"jobspec": "FILE"}),
        columns=table_width(),
    ).to_json()


# Shared by following a job and following its log.

display = Display()
# Each call costs the machine a third of a second of CPU, so even a log that always grows is read only this often.
POLL_SECONDS = 2.0
# After how long a head that is gone is asked again.
GONE_SECONDS = 7.0
# A head may need a minute to restart. If it stays unreachable longer, following ends.
UNANSWERED_SECONDS = 120.0
NO_JOB = "No job was named. Pass -e submission_id=ID; status.yml lists the latest jobs"


def announcement(submission_id: str) -> str:
    """Shown before following begins: an interrupted ansible-playbook cannot show anything afterwards."""
    command = playbook_command("logs", {"submission_id": submission_id, "job_wait": True})
    first = f"Following {submission_id}. Ctrl-C stops following, the job continues. To follow it again:"
    return f"{printable(first, lines=False)}\n  {printable(command, lines=False)}"


def unknown_id(submission_id: object) -> str:
    """The message for an id that cannot be one; an empty id means that none was given."""
    shown = printable(repr(submission_id))
    return f"{shown} is not a submission id; status.yml lists the latest jobs" if submission_id else NO_JOB


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


def unreachable_text(error: AnsibleConnectionFailure, node: str) -> str:
    """The message for a node to which no connection was made. The connection's own has what to do."""
    return f"{node} cannot be reached: {one_line(error)}"
