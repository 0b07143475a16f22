# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.report`: show a table, and fail on errors. Documented in plugins/modules/report.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.text import table

display = Display()


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
        wrong = errors(findings)
        parts = []
        if arguments["rows"]:
            parts.append(table(arguments["header"], arguments["rows"]))
        if findings:
            parts += [*([""] if parts else []), findings_table(findings)]
        parts += arguments["text"]
        if parts:
            title = [arguments["title"]] if arguments["title"] else []
            display.display("\n" + "\n".join([*title, *parts]))
        # Ansible prints the message of a failure twice, so it has to be short.
        problems = [f"{len(wrong)} error{'s'[: len(wrong) > 1]}, see the table above"] if wrong else []
        if arguments["fail_when"]:
            problems.append(arguments["fail_when"])
        if problems:
            return {"changed": False, "failed": True, "msg": ". ".join(problems)}
        return {"changed": False}
