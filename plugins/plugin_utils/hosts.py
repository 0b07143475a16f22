# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters for what only a template can decide: the hosts of a play."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible import context
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.plugin_utils.inventory import inventory, validation
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import NODES, Groups, HostVars


def machine_hosts(groups: Groups, hostvars: HostVars, reached: Iterable[str]) -> list[str]:
    """hostvars: empty in the first play of a run, for which Ansible has none, and with --list-hosts."""
    nodes = groups.get(NODES, [])
    return list(inventory.placement(nodes, hostvars, reached)) if hostvars else list(nodes)


def machine_name(node: str, hostvars: HostVars) -> str:
    return inventory.machine_name(node, hostvars[node])


def validated_hosts(groups: Groups, sources: Sequence[str], may_be_empty: bool = False) -> str:
    """The hosts of the play that validates: all, which --limit narrows.

    Without any, the controller, whose play reports that: Ansible would skip all plays, and succeed. With --limit, it
    would skip that of the controller as well, so this is an error.
    """
    if groups["all"] or may_be_empty:
        return "all"
    if context.CLIARGS.get("subset"):
        findings = validation.no_hosts_findings([str(source) for source in sources])
        problems = [f"the inventory {finding.where} {finding.problem}: {finding.remedy}" for finding in findings]
        raise AnsibleFilterError("; ".join(problems))
    return "localhost"
