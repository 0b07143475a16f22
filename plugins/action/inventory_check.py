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
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import public_variables
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.allocation import OF_INVENTORY


def inventory_findings(
    hostvars: HostVars,
    groups: Groups,
    run: Sequence[str] = (),
    works_on: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> list[Finding]:
    """What is wrong with an inventory, and with the hosts that --limit leaves of it."""
    if not any(groups.values()):
        return inventory.without_hosts(list(sources))
    findings = inventory.validate(hostvars, groups, {*public_variables(), *OF_INVENTORY})
    findings += port_inventory.port_inventory_findings(hostvars, groups)
    findings += inventory.run_findings(run, works_on, groups)
    findings += inventory.source_findings(sources)
    if constants.INJECT_FACTS_AS_VARS:
        text = "inject_facts_as_vars is true: what a job answers in place of a module would set variables of all hosts"
        remedy = "set inject_facts_as_vars = false in its section [defaults]; ANSIBLE_INJECT_FACT_VARS sets it as well"
        findings.append(Finding("ansible.cfg", text, remedy))
    return findings


def process_nodes(hostvars: HostVars, groups: Groups) -> list[str]:
    """The nodes without a container whose Python for modules is not set."""
    processes = [
        node for node in inventory.cluster_nodes(groups) if inventory.runtime_of(hostvars[node]) == nodes.PROCESS
    ]
    return [node for node in processes if not hostvars[node].get("ansible_python_interpreter")]


class ActionModule(Action):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        hostvars, groups = variables["hostvars"], variables["groups"]
        sources = [str(source) for source in variables.get("ansible_inventory_sources") or ()]
        run = variables["ansible_play_hosts_all"]
        findings = inventory_findings(hostvars, groups, run, arguments["works_on"], sources)
        text = []
        if arguments["is_described"] and not errors(findings):
            text = [inventory.summary(hostvars, groups, public_variables()["cluster_name"])]
        result = show("Inventory" if findings else None, findings=findings, text=text)
        return {**result, "process_nodes": [] if errors(findings) else process_nodes(hostvars, groups)}
