# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.report`: show a table, and fail on errors. Documented in plugins/modules/report.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, sentence, table
from ansible_collections.argus.verl.plugins.plugin_utils.terminal import Terminal, terminal

display = Display()


def report_lines(
    title: str | None,
    header: Sequence[str] | None,
    rows: Sequence[Sequence[Any]] | None,
    findings: Sequence[Finding],
    text: Sequence[str],
    where: Terminal | None = None,
) -> list[str]:
    """Return the lines to print; none when there is nothing below the title."""
    width, sentence_width = (where.columns, where.sentence_width) if where else (None, None)
    lines = [table(header or (), rows, width)] if rows else []
    title = sentence(printable(title or "", lines=False), sentence_width)
    text = [sentence(printable(line), sentence_width) for line in text]
    if findings:
        # An empty line separates the two tables.
        lines += [*([""] if lines else []), findings_table(findings, width)]
    lines += text
    return [title, *lines] if title and lines else lines


def failure(findings: Sequence[Finding], fail_when: str | None) -> str:
    """Return the message to fail with, or nothing. The table says the rest."""
    wrong = len(errors(findings))
    problems = [f"{wrong} error{'s' if wrong > 1 else ''}, see the table above"] if wrong else []
    return ". ".join([*problems, *([printable(fail_when)] if fail_when else [])])


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller, without a connection."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(
            argument_spec={
                "title": {"type": "str"},
                "header": {"type": "list", "elements": "str"},
                "rows": {"type": "list", "elements": "list"},
                "findings": {"type": "list", "elements": "dict"},
                "text": {"type": "list", "elements": "str", "default": []},
                "fail_when": {"type": "str"},
            },
            required_together=[("header", "rows")],
        )
        findings = [Finding(**finding) for finding in arguments["findings"] or []]
        table_of = (arguments["title"], arguments["header"], arguments["rows"])
        lines = report_lines(*table_of, findings, arguments["text"], terminal(display.columns))
        if lines:
            display.display("\n" + "\n".join(lines))
        message = failure(findings, arguments["fail_when"])
        return {"changed": False, "failed": True, "msg": message} if message else {"changed": False}
