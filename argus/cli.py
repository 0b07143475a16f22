# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus VERB [ID] [options] [--json]: jobs, where they run.

With ``--json`` a verb reads one JSON object with its options from standard input, and writes one:
``{"changed": bool, "findings": [{severity, where, what, todo, key}], "result": {…}}``. Without it, a verb prints for
people. Exit codes: 0, it is done; 1, it is refused or has failed, and findings say why; 2, it was used wrongly or has a
defect.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .common.findings import Finding, findings_table
from .common.text import printable
from .jobs.defaults import enter_node, jobs_api, shared_root
from .jobs.info import JobInfo, JobList
from .jobs.listing import UnknownJobError
from .jobs.logs import BEGINNING, PositionError
from .jobs.query import job_status, jobs_status
from .jobs.report import field, job_report, jobs_report
from .jobs.services import RefusedError
from .launcher.identity import cluster_name
from .launcher.ray_api import PATIENCE_SECONDS, RayHead, slowness
from .launcher.reading import UnreadableError
from .launcher.status import ENDED

DONE, REFUSED, DEFECT = 0, 1, 2
FOLLOW_SECONDS = 10.0
MAX_REQUEST_BYTES = 8 << 20


class StatusRequest(BaseModel):
    """The options of `status` and `logs`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    submission_id: str = ""
    shared_root: str = Field(default_factory=shared_root)
    # Of the head's Jobs API; empty: only archives are read.
    address: str = Field(default_factory=jobs_api)
    tags: dict[str, Any] = {}
    limit: int = 20
    tail: int = 0
    log_position: str | None = None
    wait_timeout: float = 0.0

    @property
    def root(self) -> Path:
        return Path(self.shared_root)

    def head(self) -> RayHead | None:
        token = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
        return RayHead(self.address, token, patience=PATIENCE_SECONDS) if self.address else None


def status(request: StatusRequest) -> dict[str, Any]:
    """One job, or the latest ones."""
    head = request.head()
    try:
        if not request.submission_id:
            return jobs_status(request.root, head, request.limit, request.tags)
        wait = (request.tail, request.log_position, request.wait_timeout)
        return job_status(request.root, head, request.submission_id, *wait)
    except UnknownJobError as error:
        raise RefusedError(
            [Finding(request.submission_id, str(error), "argus status lists them", key="submission_id")]
        ) from error
    except UnreadableError as error:
        raise RefusedError([Finding(str(error.path), str(error), "see docs/archive.md")]) from error
    except PositionError as error:
        what = f"{request.log_position!r} is not a position in a log: {error}"
        raise RefusedError(
            [Finding("log_position", what, "pass one that status has returned", key="log_position")]
        ) from error


# --- For people -------------------------------------------------------------------------------------------------------


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def shown_status(answer: dict[str, Any]) -> list[str]:
    """The lines about one job, or the latest ones."""
    width = terminal_width()
    if "job" in answer:
        job = JobInfo.from_json(answer["job"])
        logs = f"argus logs {job.submission_id}"
        report = job_report(job, answer["time"], [field("Log", logs if job.ended else f"{logs} --follow")], width)
    else:
        listed = JobList.from_json(answer)
        commands = {
            "status_command": "argus status ID",
            "submit_command": "ansible-playbook playbooks/submit.yml -e jobspec=FILE",
        }
        report = jobs_report(listed, answer["time"], cluster=cluster_name() or "of this node", **commands)
    return [*slowness(answer["slow"]), *report.lines(width)]


def followed(request: StatusRequest) -> Iterator[str]:
    """The lines of a job's log from a position on, until the job has ended."""
    position = request.log_position
    while True:
        asked = request.model_copy(update={"log_position": position, "wait_timeout": FOLLOW_SECONDS})
        job = status(asked)["job"]
        yield from job["log"]
        if job["log_position"] == position and (job["state"] in ENDED or job["unattended"]):
            end = job["notice"] if job["unattended"] else job["reason"]
            yield f"{job['submission_id']} {job['state']}{f': {end}' if end else ''}"
            return
        position = job["log_position"]


def tag(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    wrong = [value for value in values if "=" not in value]
    if wrong:
        raise click.BadParameter(f"{', '.join(wrong)}: write NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


def common(command: Callable[..., None]) -> Callable[..., None]:
    """The options of all verbs."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Read options from standard input and answer in JSON."),
        click.option("--shared-root", help="The path of the shared root.  [default: this node's]"),
        click.option("--address", help="The head's Jobs API; \"\" reads archives alone.  [default: this node's]"),
    ):
        command = option(command)
    return command


def request_from(as_json: bool, **options: Any) -> StatusRequest:
    """The options of the command line, and with --json those of standard input."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        text = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1) if as_json else b"{}"
        if len(text) > MAX_REQUEST_BYTES:
            raise click.UsageError(f"standard input has more than {MAX_REQUEST_BYTES >> 20} MiB")
        return StatusRequest(**{**given, **json.loads(text or b"{}")})
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise click.UsageError("; ".join(problems)) from error
    except (ValueError, TypeError) as error:
        raise click.UsageError(f"standard input is not a JSON object: {error}") from error


@click.group(
    help="Jobs of this cluster, from any of its nodes.", context_settings={"help_option_names": ["-h", "--help"]}
)
def program() -> None:
    pass


@program.command(name="status", short_help="Show a job, or the latest ones.")
@click.argument("submission_id", metavar="[ID]", required=False)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=tag, help="List only jobs with this tag.")
@click.option("--limit", type=int, help="How many jobs to list.  [default: 20]")
@common
def status_command(as_json: bool, **options: Any) -> None:
    """Show the job ID, or the latest jobs."""
    request = request_from(as_json, **options)
    if as_json:
        write_answer(status(request))
        return
    request = request.model_copy(update={"tail": 5})
    click.echo("\n".join(shown_status(status(request))))


@program.command(name="logs", short_help="Show the log of a job.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("--tail", type=int, help="Show so many lines of its end.  [default: 100]")
@click.option("--follow", is_flag=True, help="Show what comes, until the job has ended.")
@common
def logs_command(as_json: bool, follow: bool, **options: Any) -> None:
    """Show the log of the job ID."""
    request = request_from(as_json, **options)
    if not request.submission_id:
        raise click.UsageError("name a job: argus logs ID; argus status lists the latest ones")
    if as_json:
        write_answer(status(request))
        return
    answer = status(request.model_copy(update={"tail": request.tail or 100}))["job"]
    for line in answer["log"]:
        click.echo(printable(line))
    if follow:
        for line in followed(request.model_copy(update={"log_position": answer["log_position"] or BEGINNING})):
            click.echo(printable(line))


# --- Answers and exit codes -------------------------------------------------------------------------------------------


def write_answer(result: dict[str, Any], findings: Sequence[Finding] = (), changed: bool = False) -> None:
    answer = {"changed": changed, "findings": [finding.as_dict() for finding in findings], "result": result}
    click.echo(json.dumps(answer))


def defect(error: Exception) -> Finding:
    """A mistake of this program: its traceback is in a file that the finding names."""
    with tempfile.NamedTemporaryFile("w", prefix="argus-", suffix=".txt", delete=False) as file:
        file.writelines(traceback.format_exception(error))
    what = f"argus has a defect: {type(error).__name__}: {error}"
    return Finding("argus", what, f"report it with {file.name}", key="defect")


def main(arguments: Sequence[str]) -> int:
    """Run a verb, and return its exit code."""
    as_json = "--json" in arguments
    try:
        enter_node()
        program.main(list(arguments), prog_name="argus", standalone_mode=False)
        return DONE
    except click.UsageError as error:
        findings, code = [Finding("argus", error.format_message(), "see argus --help", key="usage")], DEFECT
        if not as_json:
            error.show()
            return code
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except RefusedError as refused:
        findings, code = list(refused.findings), REFUSED
    except Exception as error:
        findings, code = [defect(error)], DEFECT
    if as_json:
        write_answer({}, findings)
    else:
        click.echo(findings_table(findings, terminal_width()), err=True)
    return code
