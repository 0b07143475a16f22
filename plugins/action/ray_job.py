# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_job`: submit a job or a sweep by `argus submit` on the head, follow it, or stop it.

Documented in plugins/modules/ray_job.py.
"""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.archive.archive import SUBMISSION_ID
from ansible_collections.argus.verl.plugins.module_utils.argus.archive.status import ENDED, JobState
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import archive_path
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.report import (
    failure_lines,
    field_line,
    log_lines,
    progress_line,
    warning_lines,
)
from ansible_collections.argus.verl.plugins.modules.ray_job import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options, failure
from ansible_collections.argus.verl.plugins.plugin_utils.controller_files import edited_file_warnings
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import NODES
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import (
    NewWarnings,
    announcement,
    invalid_id_message,
    job_commands,
    playbook_command,
    poll_job,
)
from ansible_collections.argus.verl.plugins.plugin_utils.jobspec_file import extra_variables, load_jobspec
from ansible_collections.argus.verl.plugins.plugin_utils.plan.drain import unlisted_worker_notes
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import Answer, ProgramError, unreachable_text
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NodeAction
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report, table_width

display = Display()
# Polling costs CPU on the head, and takes up to 2 s on a slow machine. The progress has to appear every 10 s.
POLL_SECONDS = 7.0
LOG_LINES = 15
# `where` of findings about the argus program itself.
PROGRAM_ERROR_PLACE = "argus"
# The timeouts of the checks of a JobSpec on the head and its workers, and of a job's end.
SUBMIT_TIMEOUT_SECONDS, STOP_TIMEOUT_SECONDS = 900.0, 180.0


class ActionModule(NodeAction):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        try:
            if arguments["state"] == "stopped":
                result = self.stop(arguments["submission_id"], arguments["requested_by"])
            elif (arguments["sweep"] or {}).get("jobs"):
                return self.submit_sweep(arguments, variables)
            else:
                result = self.submit(arguments, variables)
        except AnsibleConnectionFailure as error:
            return failure(unreachable_text(error, f"The head {self.node.name}"))
        if not result.get("failed"):
            self.show_job(result, arguments)
        return result

    def show_job(self, result: Result, arguments: Mapping[str, Any]) -> None:
        """Show the state of the job, and the commands for it."""
        submission_id, state, check = result["submission_id"], result["state"], bool(self._task.check_mode)
        # A job that was stopped, or followed to its end, has its complete checkpoints in the result.
        checkpoints = (result.get("job") or {}).get("checkpoints") or [None]
        commands = job_commands(submission_id, state, result.get("checkpoint") or checkpoints[-1])
        title = f"Job {submission_id}: {state}"
        if arguments["state"] == "stopped":
            print_report(title if result["changed"] else f"{title}, it had ended before", text=commands)
            return
        # The notes about a followed job were shown before following.
        notes = [] if arguments["wait"] and not check else (result.get("facts") or {}).get("notes", [])
        if check:
            print_report(text=[*notes, f"The job would be {state}: no errors were found."])
            return
        archive = f"Archive:  {archive_path(self.shared_root, submission_id)}"
        print_report(title if result["changed"] else f"{title}, submitted before", text=[*notes, archive, *commands])

    @property
    def shared_root(self) -> str:
        """The path of the shared root on the machine, for people."""
        return self.node.shared_root_source or self.node.shared_root

    def stop(self, submission_id: str, requested_by: str) -> Result:
        if problem := invalid_id_failure(submission_id):
            return problem
        check = bool(self._task.check_mode)
        if not check:
            show(f"\nStopping {submission_id}. A job that is still starting may need a minute to stop.")
        requester = requested_by or f"{user_name()}@{platform.node()}"
        request = {"submission_id": submission_id, "requested_by": requester, "check": check}
        return self.verb_result("stop", request, STOP_TIMEOUT_SECONDS, only_running_node=True)

    def submit_sweep(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Result:
        """Submit the jobs of a sweep one by one. The first that is refused ends it, and makes the result a failure."""
        sweep = arguments["sweep"]
        limits = {**arguments["limits"], **({"sweep": {"jobs": sweep["at_once"]}} if sweep["at_once"] else {})}
        results: list[Result] = []
        for job in sweep["jobs"]:
            display.display(f"Checking {printable(job['submission_id'], lines=False)}")
            settings = [{"set": [f"submission_id={job['submission_id']}", *job["set"]]}]
            results.append(self.submit({**arguments, "limits": limits}, variables, settings))
            if results[-1].get("failed"):
                break
        submitted = [result for result in results if not result.get("failed")]
        names = ",".join(result["submission_id"] for result in submitted)
        tag = {"tag": f"sweep={sweep['name']}"}
        commands = [
            field_line("Status", playbook_command("status", tag)),
            field_line("Compare", playbook_command("report", {"submission_id": names})),
            field_line("Stop", playbook_command("stop", {"submission_id": names})),
        ]
        text = commands if submitted and not self._task.check_mode else []
        rows = [[result["submission_id"], result["state"]] for result in submitted]
        print_report(f"Sweep {sweep['name']}", ["job", "state"], rows, text=text)
        changed = any(result["changed"] for result in submitted)
        return {**(results[-1] if len(submitted) < len(results) else {}), "changed": changed, "jobs": submitted}

    def submit(
        self, arguments: Mapping[str, Any], variables: Mapping[str, Any], job_settings: Sequence[Mapping[str, Any]] = ()
    ) -> Result:
        """Submit a new job or resubmit one, and follow it if `wait` is set.

        job_settings: keys and overrides of a job of a sweep, which take precedence over those of the command line.
        """
        check = bool(self._task.check_mode)
        resubmitted_from = arguments["resubmitted_from"]
        is_new = resubmitted_from is None
        command_line_settings = extra_variables(self._loader, of_new_job=is_new) if arguments["command_line"] else []
        settings = [*command_line_settings, *job_settings]
        request = {
            "command_line": settings,
            "defaults": arguments["defaults"],
            "secrets": arguments["secret_values"],
            "notify": arguments["notify"],
            "limits": arguments["limits"],
            "submitted_by": f"{user_name()}@{platform.node()}",
            "check": check,
        }
        if not is_new:
            if problem := invalid_id_failure(resubmitted_from):
                return problem
            request["submission_id"] = resubmitted_from
        elif arguments["file"] is None:
            request["jobspec"] = arguments["jobspec"]
        else:
            sources = [str(source) for source in variables.get("ansible_inventory_sources") or []]
            # Without a file, the variables of the command line may be the whole JobSpec.
            is_whole = not arguments["file"] and any(value is not None for keys in settings for value in keys.values())
            request["jobspec"], findings = ({}, []) if is_whole else load_jobspec(arguments["file"], sources)
            if findings:
                return show_refusal(findings)
        verb = "submit" if is_new else "resubmit"
        answer = self.call_verb(verb, request, SUBMIT_TIMEOUT_SECONDS, only_running_node=True)
        findings = [*answer.findings, *edited_file_warnings(arguments["user_code"], answer.result.get("files") or {})]
        if not answer.accepted:
            return failure(answer.refusal_text) if is_program_failure(answer) else show_refusal(findings)
        if findings:
            show_findings(findings)
        result: Result = {"changed": answer.changed, **answer.result}
        if invalid_id_failure(result["submission_id"]):
            # Jobs can change the answer of the head, and the id becomes part of paths and of commands for people.
            return failure(f"the head answered for {result['submission_id']!r}, which is not a submission id")
        facts = result.get("facts") or {}
        # The head does not know the inventory.
        if facts.get("workers"):
            about_unlisted = unlisted_worker_notes(facts["workers"], variables["groups"][NODES])
            facts["notes"] = [*facts.get("notes", []), *about_unlisted]
        if not arguments["wait"] or check:
            return result
        for note in facts.get("notes", []):
            show(note)
        return merge_followed_result(result, self.follow(result["submission_id"]))

    def follow(self, submission_id: str) -> Result:
        """Show the progress until the job has ended. The result is a failure unless the job succeeds."""
        request = {"submission_id": submission_id, "wait_timeout": POLL_SECONDS, "tail": LOG_LINES}
        display.display(f"\n{announcement(submission_id)}\n")
        warnings, shown = NewWarnings(), ""
        try:
            for job, answer in poll_job(lambda: self.job_info(request), submission_id):
                for line in warnings.lines(job):
                    show(line)
                shown = show_progress(job, answer["time"], shown)
                if job.ended:
                    break
        except ProgramError as error:
            return {"failed": True, "msg": str(error)}
        return followed_result(job, answer["job"], archive_path(self.shared_root, submission_id))


def is_program_failure(answer: Answer) -> bool:
    """Whether the program itself failed, so that the JobSpec was not refused."""
    return any(finding.where == PROGRAM_ERROR_PLACE for finding in answer.findings)


def user_name() -> str:
    """The user of this process, or the uid if the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def invalid_id_failure(submission_id: object) -> Result | None:
    """A failure if this is not a submission id, which becomes part of paths and commands; else None."""
    is_id = isinstance(submission_id, str) and SUBMISSION_ID.fullmatch(submission_id)
    return None if is_id else failure(invalid_id_message(submission_id))


def show(text: str) -> None:
    """Display text without control characters: jobs may have written it."""
    display.display(printable(text))


def show_progress(job: JobInfo, now: float, shown: str) -> str:
    """Show the progress of a job as a line, unless that was shown last, and return the line."""
    closing = "  collecting the final evidence" if job.state in ENDED and not job.ended else ""
    line = f"{progress_line(job, now)}{closing}"
    if line != shown:
        show(line)
    return line


def followed_result(job: JobInfo, job_json: Result, archive: str) -> Result:
    """The result for a job that has ended. If it did not succeed, the end of its log and the cause are shown.

    job_json: the job as the head returned it. archive: its path for people.
    """
    if job.state == JobState.SUCCEEDED:
        if lines := [*([f"Reason:  {job.reason}"] if job.reason else []), *warning_lines(job)]:
            show("\n".join(lines))
        return {"job": job_json, "state": job.state}
    log_line = f"Its log:  {archive}/logs"
    show("\n".join([*log_lines(job), *failure_lines(job.failure), *warning_lines(job), log_line]))
    fetch = playbook_command("fetch", {"submission_id": job.submission_id})
    message = f"{job.submission_id} {job.state}: {job.reason}. Its archive: {fetch}"
    kind = job.failure.kind if job.failure else None
    return {"failed": True, "state": job.state, "kind": kind, "msg": printable(message)}


def merge_followed_result(submitted: Result, end: Result) -> Result:
    """The result of a submission, completed by that of following the job."""
    if end.get("failed"):
        # Ansible prints the whole result of a failure, and the overrides alone fill a screen.
        submitted = {key: submitted[key] for key in ("changed", "submission_id", "archive", "state")}
    return submitted | end


def show_findings(findings: Iterable[Finding]) -> None:
    show(f"\n{findings_table(findings, table_width())}")


def show_refusal(findings: Sequence[Finding]) -> Result:
    """Show the findings, and return a short failure: other stdout callbacks of Ansible print all of it, twice."""
    show_findings(findings)
    count = len(errors(findings))
    errors_text = f"{count} error{'s'[: count > 1]}"
    return failure(f"The JobSpec was refused; nothing was changed: {errors_text}, see the table above")
