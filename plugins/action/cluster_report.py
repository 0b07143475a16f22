# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.cluster_report`: show a cluster, or what is missing. Documented in plugins/modules/cluster_report.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import HEADS, NODES
from ansible_collections.argus.verl.plugins.module_utils.cluster.report import ClusterInfo, Scope, cluster_report
from ansible_collections.argus.verl.plugins.plugin_utils.readiness import RESULTS, RunResults
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show

ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "cluster": {"type": "dict", "required": True},
    "plan": {"type": "dict", "required": True},
    "results": {"type": "dict", "options": RESULTS, "default": {}},
    "dashboard": {"type": "str", "required": True},
    "least": {"type": "int"},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller, without a connection."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        variables = task_vars or {}
        groups, cluster = variables["groups"], ClusterInfo.from_json(arguments["cluster"])
        results = RunResults(variables["hostvars"], arguments["results"], arguments["plan"])
        plans = results.nodes()
        scope = Scope(
            name=arguments["name"],
            dashboard=arguments["dashboard"],
            inventory_nodes=groups[NODES],
            heads=groups[HEADS],
            outside=[node for node in groups[NODES] if node not in plans],
            least=arguments["least"],
        )
        logs = {name: results.log(name) for name in cluster.missing if name in plans}
        planned = {name: node for name, node in plans.items() if not node.absent}
        return show(**cluster_report(cluster, planned, logs, scope))
