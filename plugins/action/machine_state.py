# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.machine_state`: run the module on the machine, after copying the program `argus` there.

Documented in plugins/modules/machine_state.py.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_name, upload_program


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True
    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if arguments.get("state", "present") == "present":
            arguments["program"] = program_name() if self._task.check_mode else upload_program(self)
        result: dict[str, Any] = self._execute_module(module_args=arguments, task_vars=task_vars)
        return result
