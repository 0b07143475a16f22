# SPDX-License-Identifier: Apache-2.0
"""argus VERB [ID] [options] [--json]: the command for jobs, nodes and staged items, which runs in a node.

With ``--json`` a verb reads one JSON object with its options from standard input, and writes one:
``{"changed": bool, "findings": [{severity, where, what, todo, key}], "result": {…}}``. Without it, a verb prints for
people. The output of `fetch` and `report` is a file, and their answer is the last line of standard error. Exit codes:
0, done; 1, refused or failed, and findings say why; 2, wrong usage, or a defect of this program.
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
# The verbs in the order of the help, those that only the steward and playbooks call at the end.
VERBS = (
    *("submit", "status", "logs", "stop", "resubmit", "fetch", "export", "evidence", "report", "nodes", "staged"),
    *("shell", "gc", "gc --jobs", "admit", "pages", "stage", "drain", "removal", "all_reduce", "node"),
)
# The module of `verbs` with the command of a verb, where it has not the verb's name.
MODULES = {
    **{"logs": "status", "resubmit": "submit", "export": "stage", "evidence": "fetch"},
    **{"gc": "staged", "gc --jobs": "jobs_gc"},
    **{"admit": "submit", "pages": "report", "drain": "nodes", "removal": "stop", "all_reduce": "nodes"},
}
# Verbs whose standard output is a file: their answer goes to standard error.
FILE_VERBS = ("fetch", "report")


class Verbs(click.Group):
    """Imports the module of a verb only when the verb is used: to import all would take longer than most verbs."""

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
        module = importlib.import_module(f"{__package__}.verbs.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{re.sub('[ -]+', '_', cmd_name)}_command")
        return command


program = Verbs(
    help="Jobs of this cluster, from any of its nodes.", context_settings={"help_option_names": ["-h", "--help"]}
)


def refusal_findings(error: Exception) -> list[Finding]:
    """The findings for an error that is no defect: why a verb was refused or has failed. Empty for a defect."""
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


def defect_finding(error: Exception) -> Finding:
    """The finding for a mistake of this program; it names a new file with the traceback."""
    with tempfile.NamedTemporaryFile("w", prefix="argus-", suffix=".txt", delete=False) as file:
        file.writelines(traceback.format_exception(error))
    problem = f"argus has a defect: {type(error).__name__}: {error}"
    return Finding("argus", problem, f"report it with {file.name}", key="defect")


def main(arguments: Sequence[str]) -> int:
    """Run a verb, and return its exit code."""
    as_json = "--json" in arguments
    try:
        # The node that `argus node` starts must not inherit the environment of an earlier one.
        if "node" not in arguments[:1]:
            enter_node()
        # Even with log_to_driver=False, Ray prints messages of raylets on standard output.
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
        findings = refusal_findings(error)
        code = REFUSED if findings else DEFECT
        findings = findings or [defect_finding(error)]
    if as_json:
        write_answer({}, findings, err=arguments[0] in FILE_VERBS)
    else:
        click.echo(findings_table(findings, terminal_width()), err=True)
    return code


def run() -> NoReturn:
    """Run the verb of this process, and end at once with its exit code: Python and Ray would need half a second."""
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
