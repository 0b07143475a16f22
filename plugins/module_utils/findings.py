# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings: what a check has found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from .text import table

ERROR = "error"
WARNING = "warning"
# Of a finding's columns: a table of them is to be read without a window as wide as its longest message.
CELL_WIDTH = 72


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    where: the host, file or key it was found at.
    what: what is wrong, with the value.
    todo: what the reader can do about it.
    severity: "error" ends what was asked for, "warning" does not.
    """

    where: str
    what: str
    todo: str
    severity: str = ERROR

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == ERROR]


def findings_table(findings: Iterable[Finding]) -> str:
    """All findings, errors first, in the order in which they were found."""
    rows = sorted(findings, key=lambda finding: finding.severity != ERROR)
    return table(
        ("severity", "where", "what", "what to do"),
        [(row.severity, row.where, row.what, row.todo) for row in rows],
        width=CELL_WIDTH,
    )
