# SPDX-License-Identifier: Apache-2.0
"""Findings: the problems that checks report, and the table in which people read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from .text import printable, table, wrap_line

ERROR = "error"
WARNING = "warning"
NOTE = "note"
SEVERITIES = (ERROR, WARNING, NOTE)
# The maximum column width in a table of findings, so that it fits a terminal.
CELL_WIDTH = 72
HEADER = ("severity", "where", "what", "what to do")
INDENT = " " * 9


@dataclass(frozen=True)
class Finding:
    # The host, file or key that was checked, as people read it.
    where: str
    problem: str
    remedy: str
    # An ERROR stops the operation, a WARNING does not. A NOTE is information, or a problem that was accepted.
    severity: str = ERROR
    # What code knows the finding by: the dotted key of the JobSpec or of the composed configuration, with overrides
    # below ``trainer_overrides``; or the key of a check of preflight. Empty if the finding is not about a key.
    key: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def about(key: str, problem: str, remedy: str, severity: str = ERROR) -> Finding:
    """A finding about a key, which is also what people read as its place."""
    return Finding(key, problem, remedy, severity, key=key)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == ERROR]


def findings_table(findings: Iterable[Finding], width: int | None = None) -> str:
    """A table of all findings: errors, then warnings, then notes, each in the given order.

    width: the width of a line. If the table does not fit, each finding is a paragraph.
    """
    rows = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    shown = table(HEADER, [(row.severity, row.where, row.problem, row.remedy) for row in rows], width, CELL_WIDTH)
    fits = not width or max(map(len, shown.splitlines())) <= width
    return shown if fits else "\n".join(finding_paragraph(row, width or 0) for row in rows)


def finding_paragraph(finding: Finding, width: int) -> str:
    """A finding as a paragraph. Lines that a job has written are indented, so that they look like no other line."""
    remedy = f"To do: {finding.remedy}" if finding.remedy else ""
    texts = [finding.where, *("\n  ".join(text.splitlines()) for text in (finding.problem, remedy) if text)]
    unwrapped = [line for text in texts for line in text.split("\n")]
    lines = [wrap_line(f"{INDENT}{printable(line)}", width, f"{INDENT}  ") for line in unwrapped]
    lines[0] = f"{finding.severity:{len(INDENT)}}{lines[0].removeprefix(INDENT)}"
    return "\n".join(lines)
