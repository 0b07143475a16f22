# SPDX-License-Identifier: Apache-2.0
"""What all verbs share: their options from the command line or standard input, and their answer as JSON or text."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..common.findings import Finding, errors, findings_table
from ..common.identity import NODE, cluster_mismatch, node_name
from ..common.text import table
from ..jobs.services import OperationError, Services, jobs_api_address, node_shared_root
from ..ray.api import RayHead, allow_host, job_client, local_head

MAX_REQUEST_BYTES = 8 << 20


class VerbRequest(BaseModel):
    """The options of all verbs, to which each verb adds its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shared_root: str = Field(default_factory=node_shared_root)
    # The address of the head's Jobs API. Empty: only archives are read.
    address: str = Field(default_factory=jobs_api_address)
    # The path of the caller's shared root on the machines, which tells clusters apart; empty if there is no inventory.
    shared_root_source: str = ""

    @property
    def root(self) -> Path:
        return Path(self.shared_root)

    def head(self) -> RayHead | None:
        return local_head(self.address) if self.address else None


def require_node(request: VerbRequest) -> None:
    """Raise OperationError if this process is not in a node of the caller's cluster."""
    if NODE not in os.environ:
        raise OperationError("This node is not up. cluster_up.yml brings the cluster up")
    require_same_cluster(request)


def require_same_cluster(request: VerbRequest) -> None:
    """Raise OperationError if the caller means another shared root than this node has."""
    if problem := cluster_mismatch(request.shared_root_source):
        raise OperationError(problem)


def job_services(request: VerbRequest) -> Services:
    """The services for operations on jobs. Raises OperationError if this is not the head of the caller's cluster."""
    require_same_cluster(request)
    if not request.address:
        raise OperationError(f"{node_name()} is not the head of its cluster, which alone submits and stops jobs.")
    # An address in a JobSpec or an archive gets the cluster's token only if it is this one, or on the head itself.
    allow_host(request.address)
    return Services(head=local_head, client=job_client, address=request.address)


def common_options(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator that adds the options of all verbs on the command line."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Read options from standard input and answer in JSON."),
        click.option("--shared-root", help="The path of the shared root.  [default: this node's]"),
        click.option("--address", help="The head's Jobs API; \"\" reads archives alone.  [default: this node's]"),
    ):
        command = option(command)
    return command


def parse_tags(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    if malformed := [value for value in values if "=" not in value]:
        raise click.BadParameter(f"{', '.join(malformed)}: write NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


tag_option = click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=parse_tags, help="Only jobs with this tag."
)


AnyRequest = TypeVar("AnyRequest", bound=VerbRequest)


def request_from(model: type[AnyRequest], as_json: bool, one_line: bool = False, **options: Any) -> AnyRequest:
    """The request of a verb: the options of the command line, and with --json those of standard input.

    one_line: only the first line of standard input is the request; a file follows. Raises click.UsageError.
    """
    set_options = {name: value for name, value in options.items() if value is not None}
    read = sys.stdin.buffer.readline if one_line else sys.stdin.buffer.read
    try:
        text = read(MAX_REQUEST_BYTES + 1) if as_json and not sys.stdin.isatty() else b"{}"
        if len(text) > MAX_REQUEST_BYTES:
            raise click.UsageError(f"standard input has more than {MAX_REQUEST_BYTES >> 20} MiB")
        return model(**{**set_options, **json.loads(text or b"{}")})
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors())
        raise click.UsageError("; ".join(problems)) from error
    except (ValueError, TypeError) as error:
        raise click.UsageError(f"standard input is not a JSON object: {error}") from error


def write_answer(
    result: Mapping[str, Any], findings: Sequence[Finding] = (), changed: bool = False, err: bool = False
) -> None:
    """Write the answer of a verb as one line of JSON.

    err: to standard error, for verbs whose standard output is a file. Otherwise to the standard output of the process,
    even while sys.stdout is redirected.
    """
    answer = {"changed": changed, "findings": [finding.as_dict() for finding in findings], "result": result}
    click.echo(json.dumps(answer), sys.stderr if err else sys.__stdout__)


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]], findings: Sequence[Finding]) -> None:
    """Print a table and findings for people, and end with exit code 1 if there is an error among the findings."""
    click.echo(table(header, rows, terminal_width()))
    if findings:
        click.echo(f"\n{findings_table(findings, terminal_width())}")
    if errors(findings):
        raise click.exceptions.Exit(1)


def terminal_width() -> int | None:
    """The number of columns of the terminal; None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
