# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_job_info`: ask the program on the head.

Documented in plugins/modules/ray_job_info.py.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import job_status
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NODE, given_node, job_info

ARGUMENTS = {
    "node": {"type": "dict", "options": NODE},
    "submission_id": {"type": "str", "default": ""},
    "limit": {"type": "int", "default": 20},
    "tags": {"type": "dict", "default": {}},
    "tail": {"type": "int", "default": 0},
    "log_position": {"type": "str"},
    "wait_timeout": {"type": "float", "default": 0},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs a verb of the program; no module is sent."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        node = given_node(arguments.pop("node"), task_vars)
        result = job_info(self, node, arguments)
        result.pop("head_is_gone", None)
        return result if result.get("failed") else {**result, "report": job_status(result, node.cluster)}
