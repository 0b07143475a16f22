# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.job_evidence`: run argus evidence in a node. Documented in plugins/modules/job_evidence.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.evidence import SECONDS as COLLECT_SECONDS
from ansible_collections.argus.verl.plugins.plugin_utils.following import no_answer
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NODE, SECONDS, given_node, task_result

ARGUMENTS = {"node": {"type": "dict", "options": NODE}, "submission_id": {"type": "str", "required": True}}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        node = given_node(arguments.pop("node"), task_vars)
        request = {**arguments, "check": self._task.check_mode}
        try:
            # Another container has none of the node's processes.
            result = task_result(self, node, "evidence", request, COLLECT_SECONDS + SECONDS, needs_node=True)
        except AnsibleConnectionFailure as error:
            result = {"failed": True, "changed": False, "msg": no_answer(error, node.name)}
        missing = "; ".join(result.get("problems") or [result.get("msg", "")])
        nodes = ", ".join(result.get("nodes", []))
        return {**result, "row": [node.name, result.get("files", 0), nodes or None, missing or None]}
