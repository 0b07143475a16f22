# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_cluster_info`: run argus nodes on the head, also while that starts.

Documented in plugins/modules/ray_cluster_info.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import ExpectedNode
from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.readiness import unanswered
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import (
    NODE,
    SECONDS,
    Node,
    given_node,
    task_result,
)
from ansible_collections.argus.verl.plugins.plugin_utils.readiness import RESULTS, RunResults

Result = dict[str, Any]

# After how long a head that does not run is asked again.
PAUSE_SECONDS = 1.0
ARGUMENTS = {
    "node": {"type": "dict", "options": NODE},
    "expected": {"type": "list", "elements": "dict", "default": []},
    "plan": {"type": "dict"},
    "results": {"type": "dict", "options": RESULTS, "default": {}},
    "wait_timeout": {"type": "float", "default": 0},
    "earlier": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        node, start, earlier = given_node(arguments["node"], task_vars), time.time(), arguments["earlier"]
        end, began = start + arguments["wait_timeout"], earlier.get("began", start)
        expected = [ExpectedNode(**each) for each in arguments["expected"]]
        if arguments["plan"]:
            results = RunResults((task_vars or {})["hostvars"], arguments["results"], arguments["plan"])
            expected = results.expected(head_answers=earlier.get("problem") == "")
        while True:
            result, is_gone = self.ask(node, expected, max(0.0, end - time.time()))
            # It may be started again meanwhile, as its engine does.
            if not is_gone or not result["awaited"] or time.time() + PAUSE_SECONDS >= end:
                return {**result, "changed": False, "began": began, "waited": round(max(0, time.time() - began), 1)}
            time.sleep(PAUSE_SECONDS)

    def ask(self, node: Node, expected: Sequence[ExpectedNode], timeout: float) -> tuple[Result, bool]:
        """What the head answers, and whether it may answer later. Without an answer, all nodes are missing."""
        request = {"expected": [each.to_json() for each in expected], "wait_timeout": timeout}
        # Only the head itself can be asked.
        result = task_result(self, node, "nodes", request, SECONDS + timeout, needs_node=True)
        if not result.get("failed"):
            return result, False
        state = unanswered(expected, result["msg"])
        return state.to_json(), result.get("head_is_gone", False)
