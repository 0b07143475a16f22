# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.report`: show a table, and fail when it holds errors. Documented in plugins/modules/report.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, errors, findings_table, table

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller; nothing is sent anywhere."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
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
        parts = []
        failed = bool(arguments["fail_when"])
        if arguments["rows"]:
            parts.append(table(arguments["header"], arguments["rows"]))
        findings = [Finding(**finding) for finding in arguments["findings"] or []]
        if findings:
            parts.append(findings_table(findings))
            failed = failed or bool(errors(findings))
        parts += arguments["text"]
        if arguments["fail_when"]:
            parts.append(arguments["fail_when"])
        if parts and arguments["title"]:
            parts.insert(0, arguments["title"])
        text = "\n".join(parts)
        if failed:
            # Raised as an exception it would be printed twice.
            return {"changed": False, "failed": True, "msg": text}
        if text:
            display.display(f"\n{text}")
        return {"changed": False}
