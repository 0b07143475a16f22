# SPDX-License-Identifier: GPL-3.0-or-later
"""What users see of jobs: reports with the commands that they may run next, and a job's state or log as it goes on.

The commands are playbooks for the inventories of this run, or verbs if the command `argus` has started it.
"""

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
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.api import slowness_lines
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import ProgramError
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import table_width

COLLECTION = "argus.verl."
# An environment variable that the command `argus` sets to the options of its inventory.
ARGUS_VARIABLE = "ARGUS_COMMAND"
# By playbook, the verb of `argus` with another name.
VERBS = {"debug_bundle": "evidence"}
# By verb, the playbook with another name.
PLAYBOOKS = {"report": "fetch"}
# Variables of playbooks that are arguments of `argus`, and one that is an option of another name.
ARGUMENTS = ("submission_id", "jobspec", "set")
OPTIONS = {"job_wait": "--follow"}
NO_ID_MESSAGE = "No job was named. Pass -e submission_id=ID; status.yml lists the latest jobs"
# The commands for a job, by their titles: the playbook, and its variables besides the job's id.
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
display = Display()
# The shortest time between calls, even of a log that always grows: each costs the machine 0.3 s of CPU.
POLL_SECONDS = 2.0
# The pause after a call that the head did not answer.
RETRY_PAUSE_SECONDS = 7.0
# Following ends if the job's state is unknown for so long. A head needs up to a minute to restart.
UNANSWERED_SECONDS = 120.0


def inventory_arguments(sources: Sequence[str], default: Sequence[str]) -> list[str]:
    """The -i options of this run, as short paths: Ansible makes them absolute, and fills in its default."""
    if list(sources) == list(default):
        return []
    directory = Path.cwd()
    arguments = []
    for source in sources:
        path = Path(source)
        is_below = path.is_absolute() and path.is_relative_to(directory)
        arguments += ["-i", os.path.relpath(path, directory) if is_below else source]
    return arguments


def sibling_playbook(name: str, running: Sequence[str]) -> str:
    """The playbook of this name, written like those that run: with the collection's name, or as a path beside them."""
    for playbook in running:
        if playbook.startswith(COLLECTION):
            return f"{COLLECTION}{name}"
        if playbook.endswith((".yml", ".yaml")) and Path(playbook).parent.name == "playbooks":
            return str(Path(playbook).with_name(f"{name}.yml"))
    return f"playbooks/{name}.yml"


def playbook_command(name: str, variables: Mapping[str, Any]) -> str:
    """The command for a playbook of the collection, as ansible-playbook or, where `argus` runs this one, as its verb.

    variables: those of the playbook, which become arguments and options of `argus`.
    """
    if ARGUS_VARIABLE in os.environ:
        words = ["argus", VERBS.get(name, name)]
        for key in ARGUMENTS:
            words += str(variables.get(key, "")).split(",") if variables.get(key) else []
        for key, value in variables.items():
            if key not in ARGUMENTS:
                option = OPTIONS.get(key, f"--{key.replace('_', '-')}")
                words += [option, *([] if isinstance(value, bool) else [str(value)])]
        return " ".join([shlex.join(words), *filter(None, [os.environ[ARGUS_VARIABLE]])])
    arguments = context.CLIARGS
    running = arguments.get("args") or ()
    words = [
        "ansible-playbook",
        *inventory_arguments(arguments.get("inventory") or (), constants.DEFAULT_HOST_LIST if arguments else ()),
        sibling_playbook(PLAYBOOKS.get(name, name), running if isinstance(running, (list, tuple)) else ()),
    ]
    for key, value in variables.items():
        words += ["-e", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join(words)


def command_lines(submission_id: str, *titles: str, checkpoint: int | None = None) -> list[str]:
    """The lines with the commands of these titles.

    checkpoint: the step of the job's last complete checkpoint, from which a job that is resubmitted resumes; None if
    there is none.
    """
    lines = []
    for title in titles:
        playbook, variables = COMMANDS[title]
        if title == "Resubmit" and checkpoint:
            variables = {"set": f"resume_from={submission_id}"}
        command = playbook_command(playbook, {"submission_id": submission_id, **variables})
        lines.append(field_line(title, command))
    return lines


def job_commands(submission_id: str, state: str, checkpoint: int | None = None) -> list[str]:
    """The lines with the commands for a job in this state. checkpoint: as for command_lines."""
    if state in ENDED:
        resumable = checkpoint if state != JobState.SUCCEEDED else None
        export = ["Export"] if checkpoint else []
        return command_lines(submission_id, "Status", "Log", "Resubmit", "Fetch", *export, checkpoint=resumable)
    return command_lines(submission_id, "Status", "Follow", "Stop", "Evidence", "Fetch")


def status_report(result: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The arguments of print_report() for the result of ray_job_info: one job, or the latest ones."""
    shown = job_or_list_report(result, cluster)
    return {**shown, "text": [*slowness_lines(result.get("slow", 0)), *shown["text"]]}


def job_or_list_report(result: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    if "job" in result:
        job = JobInfo.from_json(result["job"])
        titles = ["Log", "Resubmit", "Fetch"] if job.state in ENDED else ["Follow", "Stop", "Fetch"]
        # A job that runs may remove its checkpoints while they are read.
        titles += ["Export"] if job.state in ENDED and (job.checkpoints or job.models) else []
        if result.get("registered") is False:
            # The cluster does not know the job, as after cluster_down.yml, and resubmit would refuse it.
            titles = [title for title in titles if title != "Resubmit"]
        shown = command_lines(job.submission_id, *titles, checkpoint=job.resumable)
        return job_report(job, result["time"], shown, table_width()).to_json()
    return jobs_report(
        JobList.from_json(result),
        result["time"],
        cluster=cluster,
        status_command=playbook_command("status", {"submission_id": "ID"}),
        submit_command=playbook_command("submit", {"jobspec": "FILE"}),
        columns=table_width(),
    ).to_json()


def invalid_id_message(submission_id: object) -> str:
    """The message for a text that is no submission id; an empty one means that none was given."""
    shown = printable(repr(submission_id))
    return f"{shown} is not a submission id; status.yml lists the latest jobs" if submission_id else NO_ID_MESSAGE


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
