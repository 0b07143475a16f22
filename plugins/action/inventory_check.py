# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.inventory_check`: check an inventory before any host is touched.

Documented in plugins/modules/inventory_check.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible import constants
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding, errors
from ansible_collections.argus.verl.plugins.modules.inventory_check import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.inventory import inventory, nodes, port_inventory
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import Groups, HostVars
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import public_variables
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.allocation import SLURM_INVENTORY_VARIABLES


def inventory_findings(
    hostvars: HostVars,
    groups: Groups,
    play_hosts: Sequence[str] = (),
    required_groups: Sequence[str] = (),
    inventory_sources: Sequence[str] = (),
) -> list[Finding]:
    """Problems of an inventory, of --limit, and of ansible.cfg. inventory_sources: the paths or lists of hosts of -i.

    play_hosts: the hosts that --limit leaves. required_groups: the groups that need at least one of them.
    """
    if not any(groups.values()):
        return inventory.no_hosts_findings(list(inventory_sources))
    findings = inventory.validate(hostvars, groups, {*public_variables(), *SLURM_INVENTORY_VARIABLES})
    findings += port_inventory.port_inventory_findings(hostvars, groups)
    findings += inventory.limit_findings(play_hosts, required_groups, groups)
    findings += inventory.source_findings(inventory_sources)
    if constants.INJECT_FACTS_AS_VARS:
        text = "inject_facts_as_vars is true: a job could pose as a module and set variables on all hosts"
        remedy = "set inject_facts_as_vars = false in [defaults] of ansible.cfg; ANSIBLE_INJECT_FACT_VARS sets it too"
        findings.append(Finding("ansible.cfg", text, remedy))
    return findings


class ActionModule(Action):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        hostvars, groups = variables["hostvars"], variables["groups"]
        inventory_sources = [str(source) for source in variables.get("ansible_inventory_sources") or ()]
        play_hosts = variables["ansible_play_hosts_all"]
        findings = inventory_findings(hostvars, groups, play_hosts, arguments["works_on"], inventory_sources)
        text = []
        if arguments["show_summary"] and not errors(findings):
            text = [inventory.summary(hostvars, groups, public_variables()["cluster_name"])]
        result = print_report("Inventory" if findings else None, findings=findings, text=text)
        # playbooks/validate.yml sets ansible_python_interpreter to ray_node_python for these nodes.
        names = [] if errors(findings) else nodes_without_interpreter(hostvars, groups)
        return {**result, "nodes_without_interpreter": names}


def nodes_without_interpreter(hostvars: HostVars, groups: Groups) -> list[str]:
    """The nodes without a container for which the inventory sets no ansible_python_interpreter."""
    names = inventory.cluster_nodes(groups)
    process_nodes = [name for name in names if inventory.runtime_of(hostvars[name]) == nodes.PROCESS]
    return [node for node in process_nodes if not hostvars[node].get("ansible_python_interpreter")]
