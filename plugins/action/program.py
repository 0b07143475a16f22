# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.program`: a verb of the program, for roles that show its result themselves.

Documented in plugins/modules/program.py.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NODE, SECONDS, given_node, task_result

ARGUMENTS = {
    "verb": {"type": "str", "required": True},
    "request": {"type": "dict", "default": {}},
    "seconds": {"type": "float", "default": SECONDS},
    "apart": {"type": "bool", "default": False},
    "needs_node": {"type": "bool", "default": True},
    "node": {"type": "dict", "options": NODE},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        request = {**arguments["request"], "check": bool(self._task.check_mode)}
        node, verb, seconds = given_node(arguments["node"], task_vars), arguments["verb"], arguments["seconds"]
        return task_result(self, node, verb, request, seconds, arguments["needs_node"], arguments["apart"])
