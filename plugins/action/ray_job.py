# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of `argus.verl.ray_job`: find the JobSpec, check it without a cluster, and follow the job."""

from __future__ import annotations

import getpass
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.validation import check_type_list
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import (
    DEFAULT_SHARED_ROOT,
    archive_path,
    with_source,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.progress import progress_line
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.report import (
    failure_lines,
    log_lines,
    warning_lines,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.environment import (
    secret_value_findings,
    secret_values,
    unlisted_findings,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.inventory import inventory_findings
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.options import with_defaults
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.parse import examinable, parse_jobspec, top_key
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.spec import plain_root
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.submission_id import SUBMISSION_ID
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.status import ENDED, JobState
from ansible_collections.argus.verl.plugins.module_utils.cluster.departure import outside_notes
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import NODES
from ansible_collections.argus.verl.plugins.plugin_utils.command_line import (
    extra_variables,
    misspelt,
    with_command_line,
)
from ansible_collections.argus.verl.plugins.plugin_utils.commands import playbook_command
from ansible_collections.argus.verl.plugins.plugin_utils.following import (
    UNANSWERED_SECONDS,
    NewWarnings,
    announcement,
    given_up,
    no_answer,
    no_such_id,
    node_is_gone,
    unanswered,
)
from ansible_collections.argus.verl.plugins.plugin_utils.jobspec_file import load_jobspec
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node, given_node, job_info
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
# Defaults that the role takes from other variables than job_defaults.
INVENTORY_KEYS = ("shared_root", "ray.address", "resources.nnodes")


def check_arguments(arguments: Arguments, known: Sequence[Finding] = ()) -> list[Finding]:
    """Complete the module's arguments from the given JobSpec, and check everything that needs no cluster.

    known: findings that do not concern the JobSpec itself.
    With findings, `arguments` has "findings" and a JobSpec without their keys, so that the head can check the rest and
    all problems are listed in one table. It has no "findings" if nothing is left that the head could check.
    """
    resume_from = arguments.pop("resume_from", "")
    if resume_from and isinstance(arguments.get("jobspec"), dict):
        arguments["jobspec"] = {**arguments["jobspec"], "resume_from": resume_from}
    arguments["given"], defaults = arguments.get("jobspec"), arguments.setdefault("defaults", {})
    arguments["jobspec"] = with_defaults(arguments["given"], defaults)
    findings, spec = parse_jobspec(arguments["jobspec"])
    if spec is None:
        return [*known, *findings]
    findings += new_findings(inventory_findings(spec, defaults), findings)
    findings += take_secrets(arguments, spec.secrets)
    findings = [*known, *(with_place(finding, arguments["given"], defaults) for finding in findings)]
    rest = examinable(findings, arguments["jobspec"]) if findings else None
    if rest:
        arguments["jobspec"], arguments["findings"] = rest, [finding.as_dict() for finding in findings]
    return findings


def with_place(finding: Finding, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Finding:
    """The finding, named by the variable of the inventory if only job_defaults has its key."""
    in_defaults = has_key(defaults, finding.key) and not has_key(given, finding.key)
    if not in_defaults or finding.where != finding.key or finding.key in INVENTORY_KEYS:
        return finding
    return replace(finding, where=f"job_defaults.{finding.key}")


def has_key(values: object, key: str) -> bool:
    """Whether nested mappings have a dotted key."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def take_secrets(arguments: Arguments, names: Sequence[str]) -> list[Finding]:
    """Put the values of these secrets only into the arguments; findings for those without one."""
    given, allowed = arguments.pop("secret_values", {}), check_type_list(arguments.pop("secrets_from_environment", []))
    findings = unlisted_findings(names, given, allowed)
    unlisted = {finding.key for finding in findings}
    values = arguments["secret_values"] = secret_values(names, given, allowed, os.environ)
    return findings + [one for one in secret_value_findings(names, values) if one.key not in unlisted]


def new_findings(found: Iterable[Finding], known: Sequence[Finding]) -> list[Finding]:
    """Findings about keys that are not known to be wrong: other values stand in for those."""
    keys = {top_key(finding.key) for finding in known}
    return [finding for finding in found if top_key(finding.key) not in keys]


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True
    # The shared root, as nodes see it and on the machines.
    root, source = DEFAULT_SHARED_ROOT, ""
    node: Node

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        super().run(tmp, task_vars)
        variables, arguments = task_vars or {}, dict(self._task.args)
        warnings: list[Mapping[str, str]] = []
        self.node = given_node(arguments.pop("node", None), variables)
        self.source = str(arguments.get("shared_root_source", ""))
        self.root = plain_root(str(arguments.get("defaults", {}).get("shared_root") or DEFAULT_SHARED_ROOT))
        problem = self.prepare(arguments, variables, warnings)
        if problem:
            return problem
        # -e passes text: "false" is true for Python.
        wait = boolean(arguments.pop("wait", False)) and not self._task.check_mode
        if arguments.get("state") == "stopped" and not self._task.check_mode:
            show(f"\nStopping {arguments['submission_id']}. While it starts, that may take a minute.")
        sources = check_type_list(arguments.pop("user_code", []))
        result = self.on_head("argus.verl.ray_job", arguments, variables)
        found = result.pop("findings", [])
        found += [finding.as_dict() for finding in unstaged(sources, result.get("reward_files") or {})]
        if result.get("failed") and (found or arguments.get("findings")):
            # If the head does not answer, the controller's own findings are shown.
            return refused(self.located([*warnings, *(found or arguments["findings"])]))
        if found or warnings:
            show_findings(self.located([*warnings, *found]))
        facts = result.get("facts") or {}
        if facts.get("workers"):
            facts["notes"] = [*facts.get("notes", []), *outside_notes(facts["workers"], variables["groups"][NODES])]
        if wait and not result.get("failed"):
            for note in facts.get("notes", []):
                show(note)
            result = with_end(result, self.follow(result["submission_id"], arguments["jobspec"]))
        result.pop("head_is_gone", None)
        return result

    def prepare(self, arguments: Arguments, variables: Variables, warnings: list[Mapping[str, str]]) -> Result | None:
        """Complete the module's arguments, and add to the warnings; the task's result if that is not possible."""
        if arguments.get("state", "submitted") == "stopped":
            arguments.setdefault("requested_by", f"{user_name()}@{platform.node()}")
            return wrong_id(arguments.get("submission_id"))
        further = extra_variables(self._loader) if arguments.pop("command_line", False) else []
        if "resubmitted_from" in arguments:
            problem = self.take_registered(arguments, variables, warnings)
            if problem:
                return problem
        if "file" in arguments:
            sources = [str(source) for source in variables.get("ansible_inventory_sources") or []]
            name = str(arguments.pop("file") or "")
            # The command line may have all that is required.
            alone = not name and with_command_line({}, further)
            arguments["jobspec"], findings = ({}, []) if alone else load_jobspec(name, sources)
            if findings:
                return refused(self.located([finding.as_dict() for finding in findings]))
        # With resubmit, it names the job that is submitted again.
        without = ("submission_id",) if "resubmitted_from" in arguments else ()
        arguments["jobspec"] = with_command_line(arguments.get("jobspec"), further, without)
        unknown = misspelt(further)
        findings = check_arguments(arguments, unknown)
        if findings and "findings" not in arguments:
            return refused(self.located([*warnings, *(finding.as_dict() for finding in findings)]))
        return None

    def located(self, findings: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
        """Findings that name the shared root also as people see it, who copy files to it."""
        return [
            {**finding, **{name: with_source(finding[name], self.root, self.source) for name in ("what", "todo")}}
            for finding in findings
        ]

    def take_registered(
        self, arguments: Arguments, variables: Variables, warnings: list[Mapping[str, str]]
    ) -> Result | None:
        """Put the JobSpec of an earlier job into the arguments, without its id; the task's result on failure.

        It is the one that was submitted: jobs can write to archives, so the JobSpec there may ask for other secrets.
        """
        submission_id = arguments["resubmitted_from"]
        problem = wrong_id(submission_id)
        if problem:
            return problem
        earlier = {"state": "registered", "submission_id": submission_id}
        earlier |= {name: arguments[name] for name in ("registry",) if name in arguments}
        result = self.on_head("argus.verl.ray_job", earlier, variables)
        if result.get("failed"):
            return result
        warnings += result["findings"]
        arguments["jobspec"] = {key: value for key, value in result["jobspec"].items() if key != "submission_id"}
        return None

    def on_head(self, name: str, arguments: Arguments, variables: Variables) -> Result:
        """Run a module. If the head is gone, the result's message tells so instead of the connection's error."""
        head = f"The head {variables.get('inventory_hostname')}"
        try:
            result: Result = self._execute_module(name, arguments, task_vars=variables)
        except AnsibleConnectionFailure as error:
            return failed(no_answer(error, head), head_is_gone=True)
        gone = node_is_gone(result, head)
        if gone:
            return failed(f"{gone}. cluster_up.yml brings the cluster up", head_is_gone=True)
        # Jobs can write what the head reads, and the id becomes part of paths and of commands for people.
        if "submission_id" in result and wrong_id(result["submission_id"]):
            return failed(f"the head answered for {result['submission_id']!r}, which is not a submission id")
        return {**result, "msg": printable(str(result["msg"]))} if "msg" in result else result

    def job_info(self, request: Arguments) -> Result:
        """Ask for the job. If the head is gone, the result tells so."""
        try:
            return job_info(self, self.node, request)
        except AnsibleConnectionFailure as error:
            return failed(no_answer(error, f"The head {self.node.name}"), head_is_gone=True)

    def follow(self, submission_id: str, jobspec: Any) -> Result:
        """Poll the job until it has ended, and show a line for each poll. The result is a failure unless it succeeds.

        A head that is gone is waited for: its container may restart, or cluster_up.yml may repair it.
        """
        arguments = info_arguments(submission_id, jobspec)
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
                    return end_of(job, result["job"], archive_path(self.source or self.root, submission_id))
                problem = unanswered(job)
            if not problem:
                answered = time.monotonic()
            elif time.monotonic() - answered > UNANSWERED_SECONDS:
                return {"failed": True, "msg": printable(given_up(submission_id, problem))}


def info_arguments(submission_id: str, jobspec: object) -> Arguments:
    """The request of each poll of a job."""
    _dummy, spec = parse_jobspec(jobspec)
    where = {"shared_root": spec.shared_root, "address": spec.address} if spec else {}
    return {"submission_id": submission_id, **where, "wait_timeout": POLL_SECONDS, "tail": LOG_LINES}


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


def with_end(submitted: Result, end: Result) -> Result:
    """The result of a submission, completed by that of following the job."""
    if end.get("failed"):
        # Ansible prints the whole result of a failure, and the overrides alone fill a screen.
        submitted = {key: submitted[key] for key in ("changed", "submission_id", "archive", "state")}
    return submitted | end


def failed(message: str, **more: Any) -> Result:
    return {"failed": True, "changed": False, "msg": printable(message), **more}


def show_findings(findings: Iterable[Mapping[str, str]]) -> None:
    found = [Finding(**finding) for finding in findings]
    show(f"\n{findings_table(found, terminal(display.columns).columns)}")


def refused(findings: Sequence[Mapping[str, str]]) -> Result:
    """Show the findings. The result stays short: with other stdout callbacks, Ansible prints all of it, twice."""
    show_findings(findings)
    count = len(errors(Finding(**finding) for finding in findings))
    errors_text = f"{count} error{'s'[: count > 1]}"
    return failed(f"The JobSpec was refused; nothing was changed: {errors_text}, see the table above")
