# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters for checks of several machines together: they read what the tasks of the role preflight have registered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible.module_utils.common.validation import check_type_float, check_type_int, check_type_list
from ansible_collections.argus.verl.plugins.module_utils.cluster import inventory, port_inventory
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import ALWAYS, AUTO, NEVER
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import Groups, HostVars
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.network.reach import Reached
from ansible_collections.argus.verl.plugins.module_utils.preflight.all_reduce import (
    all_reduce_findings,
    all_reduce_rows,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Section
from ansible_collections.argus.verl.plugins.module_utils.preflight.expectation import Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.network import derived_environment
from ansible_collections.argus.verl.plugins.module_utils.preflight.reachability import matrix_rows, reach_findings
from ansible_collections.argus.verl.plugins.module_utils.preflight.storage_trial import (
    trial_findings,
    trial_of,
    trial_rows,
)

PREFLIGHT = "__preflight"
TRIAL = ("__preflight_written", "__preflight_seen", "__preflight_alone", "__preflight_together")
REACHED = "__preflight_reached"
ALL_REDUCE = "__preflight_all_reduce"
# The default of the role ray_node, which is in no variable of the inventory.
SHM_GIB = 2


def reach_targets(machine: str, hosts: Iterable[str], hostvars: HostVars) -> dict[str, str]:
    """The addresses of the other machines whose nodes use the network of their machine; {} if this one's do not."""
    machines = named(hosts, hostvars)
    expected = {name: (own.get(PREFLIGHT) or {}).get("expect") or {} for name, own in machines.items()}
    addresses = {name: str(each["address"]) for name, each in expected.items() if each.get("address")}
    return {name: address for name, address in addresses.items() if name != machine} if machine in addresses else {}


def named(hosts: Iterable[str], hostvars: HostVars) -> dict[str, Any]:
    """The variables of the hosts that represent machines, by the names of these."""
    variables = {host: hostvars[host] for host in hosts}
    return {inventory.machine_name(host, own): own for host, own in variables.items()}


def preflight_together(hosts: Sequence[str], hostvars: HostVars) -> dict[str, Any]:
    machines = named(hosts, hostvars)
    matrix = {
        name: {target: Reached.from_json(each) for target, each in found.items()}
        for name, own in machines.items()
        if (found := (own.get(REACHED) or {}).get("reached"))
    }
    results = {name: [_made(own.get(fact)) for fact in TRIAL] for name, own in machines.items()}
    trials = {name: trial_of(*each) for name, each in results.items() if any(each)}
    collective = _made(hostvars[hosts[0]].get(ALL_REDUCE)) if hosts else {}
    findings = [*reach_findings(matrix), *trial_findings(trials), *all_reduce_findings(collective)]
    tables = {
        "Who reaches whom": matrix_rows(matrix),
        "Shared root": trial_rows(trials),
        "All-reduce": all_reduce_rows(collective),
    }
    return {
        "findings": [finding.as_dict() for finding in findings],
        "sections": [asdict(Section(title, header, rows)) for title, (header, rows) in tables.items() if rows],
    }


def machine_expectations(
    groups: Groups, hostvars: HostVars, reached: Sequence[str], base: Any, dashboard: Any, network: str
) -> dict[str, dict[str, Any]]:
    """What preflight compares each machine with because of the nodes on it; all at once, because hostvars are slow."""
    variables = {node: hostvars[node] for node in inventory.cluster_nodes(groups)}
    ports = check_type_int(base), check_type_int(dashboard)
    # The role's default is in no variable of the inventory.
    on_host = any(inventory.on_host_network({**own, "cluster_network": network}) for own in variables.values())
    expected = {}
    for host, placed in port_inventory.placed_nodes(variables, groups, reached).items():
        workers, heads = ([variables[node] for node in nodes] for nodes in (placed.workers, placed.heads))
        used = inventory.machine_network(heads, workers)
        shm = [check_type_float(node.get("ray_node_shm_gib", SHM_GIB)) for node in (*workers, *heads)]
        asked = [str(worker.get("ray_node_rdma", AUTO)).lower() for worker in workers]
        further = {str(group) for worker in workers for group in check_type_list(worker.get("ray_node_groups", []))}
        expected[host] = {
            "ports": [asdict(found) for found in port_inventory.machine_ranges(placed, *ports, on_host)],
            # The devices that the most demanding of its workers asks for.
            "rdma": ALWAYS if ALWAYS in asked else AUTO if AUTO in asked and on_host else NEVER,
            "groups": sorted(further),
            "object_store_gib": max(shm, default=0) / 2,
            "address": used.address,
            "trains": used.trains,
            "network_env": dict(used.env),
        }
    return expected


def derived_network(machines: Iterable[str], hostvars: HostVars) -> dict[str, dict[str, str]]:
    results = {machine: hostvars[machine].get(PREFLIGHT) or {} for machine in machines}
    contexts = {
        machine: Context(machine, Machine.from_json(result["machine"]), Expectation.from_json(result["expect"]))
        for machine, result in results.items()
        if "machine" in result
    }
    return derived_environment(contexts)


def _made(result: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The result of a task; {} if it was skipped."""
    return {} if not result or result.get("skip_reason") else result


FILTERS = {
    "derived_network": derived_network,
    "machine_expectations": machine_expectations,
    "preflight_together": preflight_together,
    "reach_targets": reach_targets,
}
