# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.report`: show a table, and fail on errors. Documented in plugins/modules/report.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show

ARGUMENTS = {
    "title": {"type": "str"},
    "header": {"type": "list", "elements": "str"},
    "rows": {"type": "list", "elements": "list"},
    "findings": {"type": "list", "elements": "dict", "default": []},
    "text": {"type": "list", "elements": "str", "default": []},
    "fail_when": {"type": "str"},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller, without a connection."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        together = [("header", "rows")]
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS, required_together=together)
        return show(**{**arguments, "findings": [Finding(**finding) for finding in arguments["findings"]]})
