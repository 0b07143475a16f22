# SPDX-License-Identifier: Apache-2.0
"""argus VERB [ID] [options] [--json]: jobs, where they run.

With ``--json`` a verb reads one JSON object with its options from standard input, and writes one:
``{"changed": bool, "findings": [{severity, where, what, todo, key}], "result": {…}}``. Without it, a verb prints for
people. The output of `fetch` and `report` is a file, and their answer is the last line of standard error. Exit codes:
0, it is done; 1, it is refused or has failed, and findings say why; 2, it was used wrongly or has a defect.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from .common.findings import Finding, findings_table
from .io.reading import UnreadableError
from .jobs.listing import UnknownJobError
from .jobs.logs import PositionError
from .jobs.services import OperationError, RefusedError, enter_node
from .staging.options import StagingError
from .verbs.request import terminal_width, write_answer

DONE, REFUSED, DEFECT = 0, 1, 2
# The verbs, and the module below `verbs` that has each.
VERBS = {
    "submit": "submit",
    "status": "status",
    "logs": "status",
    "stop": "stop",
    "resubmit": "submit",
    "fetch": "fetch",
    "export": "stage",
    "evidence": "fetch",
    "report": "report",
    "nodes": "nodes",
    "staged": "staged",
    "shell": "shell",
    "gc": "staged",
    "gc --jobs": "jobs_gc",
    # Internal ones.
    "admit": "submit",
    "pages": "report",
    "stage": "stage",
    "drain": "nodes",
    "removal": "stop",
    "all_reduce": "nodes",
    "node": "node",
}
# Their standard output is a file: they answer on standard error.
WRITE_FILES = ("fetch", "report")


class Verbs(click.Group):
    """Imports a verb when it is used: what others import may take longer than the verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "gc" and "--jobs" in args:
            args = ["gc --jobs", *(argument for argument in args[1:] if argument != "--jobs")]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"{__package__}.verbs.{VERBS[cmd_name]}")
        command: click.Command = getattr(module, f"{re.sub('[ -]+', '_', cmd_name)}_command")
        return command


program = Verbs(
    help="Jobs of this cluster, from any of its nodes.", context_settings={"help_option_names": ["-h", "--help"]}
)


def refusal(error: Exception) -> list[Finding]:
    """Why a verb was refused, or has failed; nothing for a defect."""
    match error:
        case RefusedError():
            return list(error.findings)
        case StagingError():
            return [error.finding]
        case UnknownJobError():
            return [Finding("submission_id", str(error), "argus status lists them", key="submission_id")]
        case UnreadableError():
            return [Finding(error.path, str(error), "see docs/archive.md")]
        case PositionError():
            return [Finding("log_position", str(error), "pass one that status has returned", key="log_position")]
        case OperationError():
            return [Finding("argus", str(error), "", key="operation")]
    return []


def defect(error: Exception) -> Finding:
    """A mistake of this program: its traceback is in a file that the finding names."""
    with tempfile.NamedTemporaryFile("w", prefix="argus-", suffix=".txt", delete=False) as file:
        file.writelines(traceback.format_exception(error))
    problem = f"argus has a defect: {type(error).__name__}: {error}"
    return Finding("argus", problem, f"report it with {file.name}", key="defect")


def main(arguments: Sequence[str]) -> int:
    """Run a verb, and return its exit code."""
    as_json = "--json" in arguments
    try:
        # A node does not begin with the environment of its predecessor.
        if "node" not in arguments[:1]:
            enter_node()
        # Ray prints what raylets report on standard output, also with log_to_driver=False.
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            return program.main(list(arguments), prog_name="argus", standalone_mode=False) or DONE
    except click.UsageError as error:
        findings, code = [Finding("argus", error.format_message(), "see argus --help", key="usage")], DEFECT
        if not as_json:
            error.show()
            return code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:
        findings = refusal(error)
        code = REFUSED if findings else DEFECT
        findings = findings or [defect(error)]
    if as_json:
        write_answer({}, findings, err=arguments[0] in WRITE_FILES)
    else:
        click.echo(findings_table(findings, terminal_width()), err=True)
    return code


def run() -> NoReturn:
    """Run the verb of this process, and end with its exit code. Python and Ray would need half a second for the end."""
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
