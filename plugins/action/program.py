# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.program`: run a subcommand of `argus` for roles that show its result themselves.

Documented in plugins/modules/program.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.argus.verl.plugins.modules.program import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NodeAction


class ActionModule(NodeAction):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        request = {**arguments["request"], "check": bool(self._task.check_mode)}
        node_use = {"outside_node": arguments["apart"], "only_running_node": arguments["needs_node"]}
        return self.verb_result(arguments["verb"], request, arguments["seconds"], **node_use)
