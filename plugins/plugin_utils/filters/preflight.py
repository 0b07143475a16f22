# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter for images in preflight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.cluster import images, inventory, nodes
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import Groups, HostVars
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import IMAGE
from ansible_collections.argus.verl.plugins.plugin_utils.images import sources_of

PREFLIGHT = "__preflight"
BUILDS = "__preflight_image_builds"


def image_findings(
    hosts: Sequence[str],
    hostvars: HostVars,
    groups: Groups,
    by_kind: Mapping[str, str],
    archive: Mapping[str, Any] | None = None,
) -> list[dict[str, str]]:
    results = {inventory.machine_name(host, hostvars[host]): hostvars[host].get(PREFLIGHT) or {} for host in hosts}
    probed = {name: Machine.from_json(result["machine"]) for name, result in results.items() if "machine" in result}
    nodes_there = {node: hostvars[node] for node in inventory.cluster_nodes(groups)}
    placed = inventory.placement(nodes_there, nodes_there, hosts)
    machine_of = {
        node: inventory.machine_name(host, nodes_there[host]) for host, there in placed.items() for node in there
    }
    with_workers = {machine_of[node] for node in groups.get(inventory.WORKERS, []) if node in machine_of}
    gpus = [len(probed[host].gpus) for host in with_workers if host in probed]
    amd = [len(probed[host].rocm_gpus) for host in with_workers if host in probed]
    needed = {}
    for node, own in nodes_there.items():
        image = by_kind.get(nodes.accelerator_of(own.get("ray_node_accelerator", "auto"), gpus, amd))
        # Without one, the plan of the node fails with a message of its own.
        if image:
            needed[machine_of[node]] = image
    found_builds = (hostvars[host].get(BUILDS) for host in hosts)
    builds: Mapping[str, Any] = next(filter(None, found_builds), {})
    found = images.image_findings(needed, probed, sources_of(builds, archive or {}))
    return [replace(finding, key=IMAGE.key).as_dict() for finding in found]


FILTERS = {"image_findings": image_findings}
