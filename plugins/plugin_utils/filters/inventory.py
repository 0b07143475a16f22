# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters for the inventory, before any host is touched."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible import constants, context
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster import (
    inventory,
    inventory_files,
    nodes,
    old_inventory,
    port_inventory,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import Groups, HostVars
from ansible_collections.argus.verl.plugins.module_utils.slurm.allocation import OF_INVENTORY
from ansible_collections.argus.verl.plugins.plugin_utils.jobspec_keys import jobspec_keys

ROLES = Path(__file__).resolve().parents[3] / "roles"


@functools.cache
def public_variables(roles: Path = ROLES) -> dict[str, Any]:
    """Return the defaults of all public variables by name, from the argument specs of the roles."""
    defaults: dict[str, Any] = {}
    for specification in roles.glob("*/meta/argument_specs.yml"):
        # The loader in C is ten times as fast, where there is one; every playbook waits for this.
        loaded = yaml.load(specification.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        for entry in loaded["argument_specs"].values():
            defaults |= {name: option.get("default") for name, option in entry.get("options", {}).items()}
    return defaults


def validated_hosts(groups: Groups, sources: Sequence[str], may_be_empty: bool = False) -> str:
    """The hosts of the play that validates: all, which --limit narrows.

    Without any, the controller, whose play reports that: Ansible would skip all plays, and succeed. With --limit, it
    would skip that of the controller as well, so this is an error.
    """
    if groups["all"] or may_be_empty:
        return "all"
    if context.CLIARGS.get("subset"):
        found = inventory_files.without_hosts([str(source) for source in sources])
        raise AnsibleFilterError("; ".join(f"the inventory {each.where} {each.what}: {each.todo}" for each in found))
    return "localhost"


def inventory_findings(
    hostvars: HostVars,
    groups: Groups,
    reached: Iterable[str] = (),
    works_on: Iterable[str] = (),
    sources: Iterable[str] = (),
) -> list[dict[str, str]]:
    if not any(groups.values()):
        return [finding.as_dict() for finding in inventory_files.without_hosts([str(source) for source in sources])]
    if old := old_inventory.old_form(hostvars, groups):
        # What else is wrong with it follows from this.
        return [old_inventory.old_form_finding(old).as_dict()]
    # Keys of a JobSpec are variables of the command line.
    found = inventory.validate(hostvars, groups, {*public_variables(), *jobspec_keys(), *OF_INVENTORY, "set"})
    found += port_inventory.port_inventory_findings(hostvars, groups)
    found += inventory.run_findings(reached, works_on, groups)
    found += inventory_files.source_findings(map(str, sources), constants.INVENTORY_IGNORE_PATTERNS)
    if constants.INJECT_FACTS_AS_VARS:
        what = "inject_facts_as_vars is true: what a job answers in place of a module would set variables of all hosts"
        todo = "set inject_facts_as_vars = false in its section [defaults]; ANSIBLE_INJECT_FACT_VARS sets it as well"
        found.append(Finding("ansible.cfg", what, todo))
    return [finding.as_dict() for finding in found]


def inventory_lines(hostvars: HostVars, groups: Groups) -> list[str]:
    """What to write in place of an inventory of an earlier form."""
    return old_inventory.new_form(hostvars, groups) if old_inventory.old_form(hostvars, groups) else []


def inventory_summary(hostvars: HostVars, groups: Groups) -> str:
    return inventory.summary(hostvars, groups, public_variables()["cluster_name"])


def machine_name(node: str, hostvars: HostVars) -> str:
    return inventory.machine_name(node, hostvars[node])


def process_nodes(hostvars: HostVars, groups: Groups) -> list[str]:
    """The nodes without a container whose Python for modules is not set."""
    hosts = inventory.cluster_nodes(groups)
    own = [host for host in hosts if inventory.runtime_of(hostvars[host]) == nodes.PROCESS]
    return [host for host in own if not hostvars[host].get("ansible_python_interpreter")]


FILTERS = {
    "inventory_findings": inventory_findings,
    "inventory_lines": inventory_lines,
    "inventory_summary": inventory_summary,
    "machine_name": machine_name,
    "process_nodes": process_nodes,
    "validated_hosts": validated_hosts,
}
