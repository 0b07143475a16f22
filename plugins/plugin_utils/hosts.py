# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters for the line `hosts` of a play, which only a template can decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible import context
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.plugin_utils.inventory import inventory
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import NODES, Groups, HostVars


def machine_hosts(groups: Groups, hostvars: HostVars, reached: Iterable[str]) -> list[str]:
    """The hosts that represent machines. hostvars: empty in the first play of a run, and with --list-hosts."""
    nodes = groups.get(NODES, [])
    return list(inventory.placement(nodes, hostvars, reached)) if hostvars else list(nodes)


def machine_name(node: str, hostvars: HostVars) -> str:
    return inventory.machine_name(node, hostvars[node])


def validated_hosts(groups: Groups, sources: Sequence[str], may_be_empty: bool = False) -> str:
    """The hosts of the play that validates the inventory: all, which --limit narrows.

    Ansible skips a play without hosts, and succeeds. So for an inventory without hosts, the play runs on the controller
    and reports that. With --limit, Ansible would skip the controller as well, so an error is raised here.
    """
    if groups["all"] or may_be_empty:
        return "all"
    if context.CLIARGS.get("subset"):
        findings = inventory.no_hosts_findings([str(source) for source in sources])
        problems = [f"the inventory {finding.where} {finding.problem}: {finding.remedy}" for finding in findings]
        raise AnsibleFilterError("; ".join(problems))
    return "localhost"
