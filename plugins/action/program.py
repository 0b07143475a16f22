# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.program`: a verb of the program, for roles that show its result themselves.

Documented in plugins/modules/program.py.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import errors
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import (
    NODE,
    SECONDS,
    ProgramError,
    call,
    given_node,
)

display = Display()
ARGUMENTS = {
    "verb": {"type": "str", "required": True},
    "request": {"type": "dict", "default": {}},
    "seconds": {"type": "float", "default": SECONDS},
    "node": {"type": "dict", "options": NODE},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        node = given_node(arguments["node"], task_vars)
        request = {**arguments["request"], "check": bool(self._task.check_mode)}
        try:
            answer = call(self, node, arguments["verb"], request, arguments["seconds"], needs_node=True)
        except ProgramError as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        if not answer.done:
            problems = "; ".join(printable(finding.what) for finding in errors(answer.findings))
            return {"failed": True, "changed": False, "msg": problems}
        for finding in answer.findings:
            display.warning(printable(finding.what))
        return {"changed": answer.changed, **answer.result}
