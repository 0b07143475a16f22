# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints tables and findings at the width of the terminal, and makes the task fail if there are errors."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, table, wrap_sentence

display = Display()
# Read when the run begins, as the processes that run tasks are detached from the terminal.
IS_TERMINAL = sys.stdout.isatty()
# The width of the terminal; 100 without one, as in CI and in files.
DEFAULT_TABLE_WIDTH = shutil.get_terminal_size().columns if IS_TERMINAL else 100


def table_width() -> int:
    """The width of tables: `COLUMNS` in the environment, or the default."""
    value = os.environ.get("COLUMNS", "")
    return int(value) if value.isascii() and value.isdecimal() and int(value) > 0 else DEFAULT_TABLE_WIDTH


def text_width() -> int | None:
    """The width of running text; None without a terminal, so that grep finds whole sentences."""
    return table_width() if IS_TERMINAL else None


def report_lines(
    title: str | None,
    header: Sequence[str] | None,
    rows: Sequence[Sequence[Any]] | None,
    findings: Sequence[Finding],
    text: Sequence[str],
    width_of_tables: int | None = None,
    width_of_text: int | None = None,
) -> list[str]:
    """The lines to print; no lines if nothing is below the title."""
    lines = [table(header or (), rows, width_of_tables)] if rows else []
    title = wrap_sentence(printable(title or "", lines=False), width_of_text)
    text_lines = [wrap_sentence(printable(line), width_of_text) for line in text]
    if findings:
        # An empty line separates the two tables.
        lines += [*([""] if lines else []), findings_table(findings, width_of_tables)]
    lines += text_lines
    return [title, *lines] if title and lines else lines


def failure_message(findings: Sequence[Finding], failure_text: str | None = None) -> str:
    """The message of a failure, "" without one. The findings themselves are in the table."""
    count = len(errors(findings))
    problems = [f"{count} error{'s' if count > 1 else ''}, see the table above"] if count else []
    return ". ".join([*problems, *([printable(failure_text)] if failure_text else [])])


def print_report(
    title: str | None = None,
    header: Sequence[str] | None = None,
    rows: Sequence[Sequence[Any]] | None = None,
    findings: Sequence[Finding] = (),
    text: Sequence[str] = (),
    failure_text: str | None = None,
) -> dict[str, Any]:
    """Print a title, a table of rows, the findings and lines of text. Returns the result of the task.

    The task fails if a finding is an error or failure_text is not empty; its message then ends with failure_text.
    """
    lines = report_lines(title, header, rows, findings, text, table_width(), text_width())
    if lines:
        display.display("\n" + "\n".join(lines))
    message = failure_message(findings, failure_text)
    return {"changed": False, "failed": True, "msg": message} if message else {"changed": False}
