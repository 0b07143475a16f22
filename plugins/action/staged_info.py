# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.staged_info`: run argus staged in a node. Documented in plugins/modules/staged_info.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import Verify
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NODE, given_node, task_result

ARGUMENTS = {
    "node": {"type": "dict", "options": NODE},
    "verify": {"type": "str", "choices": [verify.value for verify in Verify], "default": Verify.NO.value},
}
# Enough to read all models from a slow file server.
VERIFY_SECONDS = 86_400


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        node = given_node(arguments.pop("node"), task_vars)
        return task_result(self, node, "staged", arguments, VERIFY_SECONDS)
