# SPDX-License-Identifier: Apache-2.0
"""argus submit: creates a job from a JobSpec. argus resubmit: does so with the JobSpec of an earlier job.

argus admit: checks a job whose dependency has succeeded; only the steward calls it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import yaml

from ..common.findings import Finding, findings_table
from ..common.shared_root import JOBS_DIR, with_machine_path
from ..jobs.listing import UnknownJobError, find_job
from ..jobs.request import JobRequest, resubmission
from ..jobs.services import Effect, RefusedError, Services, root_on_machines
from ..jobs.submit import admit_dependent
from ..jobs.submit import submit as submit_job
from ..jobspec.parse import SET, with_defaults
from .request import VerbRequest, common_options, job_services, request_from, terminal_width, write_answer


class SubmitRequest(VerbRequest, JobRequest):
    def job_request(self) -> JobRequest:
        """The request with the defaults of this node."""
        node_defaults = {"shared_root": self.shared_root, "ray": {"address": self.address}}
        return self.model_copy(update={"defaults": with_defaults(self.defaults, node_defaults)})

    def with_machine_paths(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings, which then also name the path of the shared root on the machines, where people copy files."""
        root, source = self.shared_root, root_on_machines(self.shared_root)
        return [
            replace(
                finding,
                problem=with_machine_path(finding.problem, root, source),
                remedy=with_machine_path(finding.remedy, root, source),
            )
            for finding in findings
        ]


def submit(request: SubmitRequest, job: JobRequest, services: Services) -> Effect:
    try:
        return submit_job(job, services)
    except RefusedError as refused:
        raise RefusedError(request.with_machine_paths(refused.findings)) from refused


def write_effect(request: SubmitRequest, effect: Effect, as_json: bool) -> None:
    findings, job = request.with_machine_paths(effect.findings), effect.result
    if as_json:
        write_answer(job, findings, effect.changed)
        return
    if findings:
        click.echo(findings_table(findings, terminal_width()))
    if request.check:
        click.echo(f"The job would be {job['state']}: no errors were found.")
    else:
        before = "" if effect.changed else ", submitted before"
        click.echo(f"Job {job['submission_id']}: {job['state']}{before}")
        click.echo(f"Status:   argus status {job['submission_id']}")
        click.echo(f"Log:      argus logs {job['submission_id']} --follow")


def read_jobspec(file: Any) -> Any:
    """The content of a JobSpec file. Raises click.UsageError if it is not YAML."""
    try:
        return yaml.safe_load(file)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise click.UsageError(f"{file.name} is not YAML: {error}") from error


def parse_changes(_context: click.Context, _argument: click.Parameter, values: Sequence[str]) -> list[dict[str, Any]]:
    if malformed := [value for value in values if "=" not in value]:
        raise click.BadParameter(f"{', '.join(malformed)}: write KEY=VALUE")
    return [{SET: list(values)}] if values else []


changes_argument = click.argument("command_line", metavar="[KEY=VALUE]...", nargs=-1, callback=parse_changes)


@click.command(name="submit", short_help="Check a JobSpec, and submit it.")
@click.argument("file", metavar="[FILE]", type=click.File("rb"), default="-")
@changes_argument
@click.option("--check", is_flag=True, help="Check everything, submit nothing.")
@common_options
def submit_command(as_json: bool, file: Any, **options: Any) -> None:
    """Submit the JobSpec in FILE, or on standard input, with keys or overrides of the trainer set to other values.

    Secrets come from the inventory, so the controller's argus submit has them.
    """
    request = request_from(SubmitRequest, as_json, **options)
    if not as_json:
        if file.name == "<stdin>" and sys.stdin.isatty():
            raise click.UsageError("name a JobSpec file: argus submit FILE")
        request = request.model_copy(update={"jobspec": read_jobspec(file)})
    write_effect(request, submit(request, request.job_request(), job_services(request)), as_json)


class ResubmitRequest(SubmitRequest):
    submission_id: str


@click.command(name="resubmit", short_help="Submit an earlier job again.")
@click.argument("submission_id", metavar="ID", required=False)
@changes_argument
@click.option("--check", is_flag=True, help="Check everything, submit nothing.")
@common_options
def resubmit_command(as_json: bool, **options: Any) -> None:
    """Submit the job ID again, with the JobSpec with which it was submitted."""
    request = request_from(ResubmitRequest, as_json, **options)
    services = job_services(request)
    job_id = request.submission_id
    # Without the archive of the earlier job, a whole id is enough.
    with contextlib.suppress(UnknownJobError):
        job_id = find_job(request.root / JOBS_DIR, job_id).submission_id
    job = resubmission(request.job_request(), job_id, services.registry)
    write_effect(request, submit(request, job, services), as_json)


class AdmitRequest(VerbRequest):
    submission_id: str


@click.command(name="admit", hidden=True)
@click.argument("submission_id", metavar="ID", required=False)
@common_options
def admit_command(as_json: bool, **options: Any) -> None:
    """Check the job ID as a whole, and put it into the queue."""
    request = request_from(AdmitRequest, as_json, **options)
    admit_dependent(request.submission_id, job_services(request))
