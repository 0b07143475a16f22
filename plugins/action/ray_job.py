# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of `argus.verl.ray_job`: find the JobSpec and values of secrets, and follow the job.

Documented in plugins/modules/ray_job.py.
"""

from __future__ import annotations

import getpass
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import archive_path
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.progress import progress_line
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.report import (
    failure_lines,
    log_lines,
    warning_lines,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.submission_id import SUBMISSION_ID
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.status import ENDED, JobState
from ansible_collections.argus.verl.plugins.module_utils.cluster.departure import outside_notes
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import NODES
from ansible_collections.argus.verl.plugins.plugin_utils.command_line import extra_variables
from ansible_collections.argus.verl.plugins.plugin_utils.commands import playbook_command
from ansible_collections.argus.verl.plugins.plugin_utils.following import (
    UNANSWERED_SECONDS,
    NewWarnings,
    announcement,
    given_up,
    no_answer,
    no_such_id,
    unanswered,
)
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import job_commands
from ansible_collections.argus.verl.plugins.plugin_utils.jobspec_file import load_jobspec
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import (
    NODE,
    PROGRAM_ITSELF,
    Answer,
    Node,
    ProgramError,
    call,
    given_node,
    job_info,
)
from ansible_collections.argus.verl.plugins.plugin_utils.terminal import terminal
from ansible_collections.argus.verl.plugins.plugin_utils.user_code import unstaged

# Arguments, variables and results as Ansible passes them.
Arguments = dict[str, Any]
Variables = dict[str, Any]
Result = dict[str, Any]

display = Display()
# Each poll costs nearly a second of CPU, on two cores at the expense of the job, and takes up to two on a slow machine:
# a line of progress has to appear at least every 10 seconds.
POLL_SECONDS = 7.0
LOG_LINES = 15
# How long the checks of a JobSpec on the head and its workers, and the end of a job, may take in seconds.
SUBMIT_SECONDS, STOP_SECONDS = 900.0, 180.0
ARGUMENTS = {
    "state": {"type": "str", "choices": ["submitted", "stopped"], "default": "submitted"},
    "submission_id": {"type": "str"},
    "file": {"type": "str"},
    "command_line": {"type": "bool", "default": False},
    "defaults": {"type": "dict", "default": {}},
    "secret_values": {"type": "dict", "default": {}, "no_log": True},
    "secrets_from_environment": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "user_code": {"type": "list", "elements": "str", "default": []},
    "resubmitted_from": {"type": "str"},
    "resume_from": {"type": "str"},
    "requested_by": {"type": "str", "default": ""},
    "wait": {"type": "bool", "default": False},
    "node": {"type": "dict", "options": NODE},
    "jobspec": {"type": "raw"},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True
    node: Node

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        self.node = given_node(arguments["node"], variables)
        try:
            if arguments["state"] == "stopped":
                result = self.stop(arguments["submission_id"], arguments["requested_by"])
            else:
                result = self.submit(arguments, variables)
            return result if result.get("failed") else {**result, "commands": next_commands(result)}
        except ProgramError as error:
            return failed(str(error))
        except AnsibleConnectionFailure as error:
            return failed(no_answer(error, f"The head {self.node.name}"))

    def stop(self, submission_id: str, requested_by: str) -> Result:
        if problem := wrong_id(submission_id):
            return problem
        check = bool(self._task.check_mode)
        if not check:
            show(f"\nStopping {submission_id}. While it starts, that may take a minute.")
        request = {"requested_by": requested_by or f"{user_name()}@{platform.node()}", "check": check}
        answer = self.call("stop", {"submission_id": submission_id, **request}, STOP_SECONDS)
        return {"changed": answer.changed, **answer.result} if answer.done else failed(problems(answer))

    def submit(self, arguments: Arguments, variables: Variables) -> Result:
        check = bool(self._task.check_mode)
        further = extra_variables(self._loader) if arguments["command_line"] else []
        request = {
            "command_line": further,
            "resume_from": arguments["resume_from"] or "",
            "defaults": arguments["defaults"],
            "secrets": secret_values(arguments["secret_values"], arguments["secrets_from_environment"], os.environ),
            "check": check,
        }
        verb, origin = "submit", arguments["resubmitted_from"]
        if origin is not None:
            if problem := wrong_id(origin):
                return problem
            verb, request["submission_id"] = "resubmit", origin
        elif arguments["file"] is None:
            request["jobspec"] = arguments["jobspec"]
        else:
            sources = [str(source) for source in variables.get("ansible_inventory_sources") or []]
            # The command line may have all that is required.
            alone = not arguments["file"] and any(value is not None for each in further for value in each.values())
            request["jobspec"], findings = ({}, []) if alone else load_jobspec(arguments["file"], sources)
            if findings:
                return refused(findings)
        answer = self.call(verb, request, SUBMIT_SECONDS)
        edited = unstaged(arguments["user_code"], answer.result.get("reward_files") or {})
        findings = [*answer.findings, *edited]
        if not answer.done:
            return failed(problems(answer)) if is_of_program(answer) else refused(findings)
        if findings:
            show_findings(findings)
        result: Result = {"changed": answer.changed, **answer.result}
        if wrong_id(result["submission_id"]):
            # Jobs can write what the head reads, and the id becomes part of paths and of commands for people.
            return failed(f"the head answered for {result['submission_id']!r}, which is not a submission id")
        facts = result.get("facts") or {}
        if facts.get("workers"):
            facts["notes"] = [*facts.get("notes", []), *outside_notes(facts["workers"], variables["groups"][NODES])]
        if not arguments["wait"] or check:
            return result
        for note in facts.get("notes", []):
            show(note)
        return with_end(result, self.follow(result["submission_id"]))

    def call(self, verb: str, request: Arguments, seconds: float) -> Answer:
        """Run a verb on the head, which has to run."""
        return call(self, self.node, verb, request, seconds, needs_node=True)

    def job_info(self, request: Arguments) -> Result:
        """Ask for the job. If the head is gone, the result tells so."""
        try:
            return job_info(self, self.node, request)
        except AnsibleConnectionFailure as error:
            return failed(no_answer(error, f"The head {self.node.name}"), head_is_gone=True)

    def follow(self, submission_id: str) -> Result:
        """Poll the job until it has ended, and show a line for each poll. The result is a failure unless it succeeds.

        A head that is gone is waited for: its container may restart, or cluster_up.yml may repair it.
        """
        arguments = {"submission_id": submission_id, "wait_timeout": POLL_SECONDS, "tail": LOG_LINES}
        display.display(f"\n{announcement(submission_id)}\n")
        answered = time.monotonic()
        warnings = NewWarnings()
        while True:
            result = self.job_info(arguments)
            if result.get("head_is_gone"):
                problem = result["msg"]
                display.display(f"{submission_id}  the head does not answer")
                time.sleep(POLL_SECONDS)
            elif result.get("failed"):
                return result
            else:
                job = JobInfo.from_json(result["job"])
                for line in warnings.lines(job):
                    show(line)
                show_progress(job, result["time"])
                if job.ended:
                    return end_of(
                        job,
                        result["job"],
                        archive_path(self.node.shared_root_source or self.node.shared_root, submission_id),
                    )
                problem = unanswered(job)
            if not problem:
                answered = time.monotonic()
            elif time.monotonic() - answered > UNANSWERED_SECONDS:
                return {"failed": True, "msg": printable(given_up(submission_id, problem))}


def secret_values(
    given: Mapping[str, object], allowed: Iterable[str], environment: Mapping[str, str]
) -> dict[str, object]:
    """The values of secrets for jobs: those of the inventory, and those that it allows to take from an environment."""
    return {**{name: environment.get(name) for name in allowed}, **given}


def is_of_program(answer: Answer) -> bool:
    """Whether the program could not examine or submit a job, rather than refuse its JobSpec."""
    return any(finding.where == PROGRAM_ITSELF for finding in answer.findings)


def problems(answer: Answer) -> str:
    return "; ".join(finding.what for finding in answer.findings)


def user_name() -> str:
    """The user of this process; its number if the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def wrong_id(submission_id: object) -> Result | None:
    """A failure if this is not a submission id: it becomes part of paths and commands."""
    is_id = isinstance(submission_id, str) and SUBMISSION_ID.fullmatch(submission_id)
    return None if is_id else failed(no_such_id(submission_id))


def show(text: str) -> None:
    """Display text; of what jobs wrote, nothing reaches the terminal but text and colours."""
    display.display(printable(text))


def show_progress(job: JobInfo, now: float) -> None:
    closing = "  collecting the final evidence" if job.state in ENDED and not job.ended else ""
    show(f"{progress_line(job, now)}{closing}")


def end_of(job: JobInfo, returned: Result, archive: str) -> Result:
    """The result for a job that has ended. The end of its log and the cause are shown if it did not succeed.

    returned: the job as ray_job_info returned it. archive: its path for people.
    """
    if job.state == JobState.SUCCEEDED:
        if lines := [*([f"Reason:  {job.reason}"] if job.reason else []), *warning_lines(job)]:
            show("\n".join(lines))
        return {"job": returned, "state": job.state}
    where = f"Its log:  {archive}/logs"
    show("\n".join([*log_lines(job), *failure_lines(job.failure), *warning_lines(job), where]))
    fetch = playbook_command("fetch", {"submission_id": job.submission_id})
    message = f"{job.submission_id} {job.state}: {job.reason}. Its archive: {fetch}"
    kind = job.failure.kind if job.failure else None
    return {"failed": True, "state": job.state, "kind": kind, "msg": printable(message)}


def next_commands(result: Result) -> list[str]:
    """The lines with the commands for the job of a result."""
    # The last complete checkpoint of a job that was stopped, or followed to its end.
    followed = (result.get("job") or {}).get("checkpoints") or [None]
    return job_commands(result["submission_id"], result["state"], result.get("checkpoint") or followed[-1])


def with_end(submitted: Result, end: Result) -> Result:
    """The result of a submission, completed by that of following the job."""
    if end.get("failed"):
        # Ansible prints the whole result of a failure, and the overrides alone fill a screen.
        submitted = {key: submitted[key] for key in ("changed", "submission_id", "archive", "state")}
    return submitted | end


def failed(message: str, **more: Any) -> Result:
    return {"failed": True, "changed": False, "msg": printable(message), **more}


def show_findings(findings: Iterable[Finding]) -> None:
    show(f"\n{findings_table(findings, terminal(display.columns).columns)}")


def refused(findings: Sequence[Finding]) -> Result:
    """Show the findings. The result stays short: with other stdout callbacks, Ansible prints all of it, twice."""
    show_findings(findings)
    count = len(errors(findings))
    errors_text = f"{count} error{'s'[: count > 1]}"
    return failed(f"The JobSpec was refused; nothing was changed: {errors_text}, see the table above")
