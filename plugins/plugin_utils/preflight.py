# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import ALWAYS, AUTO, NEVER
from ansible_collections.argus.verl.plugins.module_utils.network.derive import DERIVED
from ansible_collections.argus.verl.plugins.module_utils.preflight.host import image_findings, missing_images
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import (
    Judgement,
    ProbedHost,
    all_reduce_findings,
    all_reduce_lines,
    clock_findings,
    judge,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.network import derived_environment
from ansible_collections.argus.verl.plugins.module_utils.preflight.shared_root import trial_findings, trial_of
from ansible_collections.argus.verl.plugins.plugin_utils.images import has_image, needed_images
from ansible_collections.argus.verl.plugins.plugin_utils.inventory import inventory, port_inventory
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import Groups, HostVars, Variables
from ansible_collections.argus.verl.plugins.plugin_utils.presence import presence
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import Presence

# What the role preflight registers.
RESULT = "__preflight"
TRIAL = ("__preflight_written", "__preflight_compared")
ALL_REDUCE = "__preflight_all_reduce"


def expectations(
    groups: Groups, hostvars: HostVars, hosts: Sequence[str], variables: Mapping[str, Variables]
) -> dict[str, dict[str, Any]]:
    """By the host that represents it, what a machine must have because of the nodes on it.

    variables: of all nodes, typed.
    """
    on_host = any(inventory.on_host_network(settings) for settings in variables.values())
    head = variables[groups[inventory.HEADS][0]]
    base, dashboard = head["cluster_port_base"], head["cluster_dashboard_port"]
    expected = {}
    for host, placed in port_inventory.nodes_by_machine(hostvars, groups, hosts).items():
        workers, heads = ([variables[node] for node in nodes] for nodes in (placed.workers, placed.heads))
        # The nodes of a machine use its network alike.
        settings = (workers or heads)[0]
        network, env = inventory.on_host_network(settings), settings["ray_node_env"]
        rdma = [worker["ray_node_rdma"] for worker in workers]
        expected[host] = {
            "ports": [asdict(ports) for ports in port_inventory.machine_ranges(placed, base, dashboard, on_host)],
            # The devices that the most demanding of its workers asks for.
            "rdma": ALWAYS if ALWAYS in rdma else AUTO if AUTO in rdma and on_host else NEVER,
            "groups": sorted({group for worker in workers for group in worker["ray_node_groups"]}),
            "object_store_gib": max((node["ray_node_shm_gib"] for node in (*workers, *heads)), default=0) / 2,
            "address": inventory.address_of(settings) if network else "",
            "trains": network and bool(workers),
            "head_storage": head["cluster_head_storage"] if heads else "",
            "network_env": {name: str(env[name]) for name in DERIVED if name in env} if network else {},
        }
    return expected


def preflight_plan(
    groups: Groups, hostvars: HostVars, hosts: Sequence[str], variables: Mapping[str, Variables]
) -> dict[str, Any]:
    """The nodes of each machine, and what it must have, before it is probed."""
    nodes = {node: hostvars[node] for node in inventory.cluster_nodes(groups)}
    return {
        "placement": inventory.placement(groups[inventory.NODES], hostvars, hosts),
        "expectations": expectations(groups, nodes, hosts, variables),
    }


def derived_environments(hostvars: HostVars, hosts: Iterable[str]) -> dict[str, dict[str, str]]:
    """By host, the variables of NCCL and gloo that jobs on its machine get."""
    machines = probed_hosts({host: hostvars[host] for host in hosts})
    return derived_environment({host: machine.context for host, machine in machines.items()})


def probed_hosts(variables: Mapping[str, Mapping[str, Any]]) -> dict[str, ProbedHost]:
    """A machine that could not be reached, or failed, has no answer."""
    results = {name: facts.get(RESULT) or {} for name, facts in variables.items()}
    return {name: ProbedHost.from_json(name, result) for name, result in results.items() if "machine" in result}


def image_sources(arguments: Mapping[str, Any], hostvars: HostVars, groups: Groups) -> tuple[list[Finding], list[str]]:
    """Find the images that machines lack; with those of them that this controller has, and no registry."""
    hosts, images = arguments["hosts"], arguments["images"]
    answers = probed_hosts({inventory.machine_name(host, hostvars[host]): hostvars[host] for host in hosts})
    machines = {name: answer.context.machine for name, answer in answers.items()}
    missing = missing_images(needed_images(hosts, hostvars, groups, images, machines), machines)
    builds = [image for kind, image in images.items() if kind in arguments["builds"]]
    is_archived = bool(arguments["archive"])
    local = {(image, engine) for image, engine in missing.values() if "/" not in image and image not in builds}
    local_images = [image for image, engine in local if not is_archived and has_image(engine, image)]
    return list(image_findings(missing, builds, is_archived, local_images)), local_images


def machine_presence(
    hosts: Sequence[str], hostvars: HostVars, groups: Groups, min_workers: int | None
) -> tuple[Presence, set[str], list[Finding]]:
    """The nodes on the machines of a run, the machines of those that cannot take part, and findings about machines.

    hosts: those that represent the machines of the run. The findings: machines that did not answer, and wrong clocks.
    """
    names = {host: inventory.machine_name(host, hostvars[host]) for host in hosts}
    placed = inventory.placement(inventory.cluster_nodes(groups), hostvars, hosts)
    machine_of = {node: names[host] for host, nodes in placed.items() if host in names for node in nodes}
    results = {name: hostvars[host].get(RESULT) or {} for host, name in names.items()}
    problems = {node: presence.machine_problem(results[machine]) for node, machine in machine_of.items()}
    present = Presence(
        heads=tuple(node for node in groups[inventory.HEADS] if node in machine_of),
        workers=tuple(node for node in groups[inventory.WORKERS] if node in machine_of),
        absent={node: problem for node, problem in problems.items() if problem},
        min_workers=min_workers,
    )
    silent = {name: problem for name, result in results.items() if (problem := presence.task_problem(result))}
    findings = [replace(finding, key="machine.reachable") for finding in presence.silent_findings(silent, present)]
    head = next((machine_of[node] for node in groups[inventory.HEADS] if node in machine_of), "")
    return present, {machine_of[node] for node in present.absent}, [*findings, *clock_findings(results, head)]


def preflight_result(
    arguments: Mapping[str, Any], hostvars: HostVars, groups: Groups, findings: Sequence[Finding] = ()
) -> Judgement:
    """The result of all machines. findings: of the controller."""
    hosts = arguments["hosts"]
    present, absent_machines, about_machines = machine_presence(hosts, hostvars, groups, arguments["least"])
    machines = {inventory.machine_name(host, hostvars[host]): hostvars[host] for host in hosts}
    results = {name: [_result_of(facts.get(fact)) for fact in TRIAL] for name, facts in machines.items()}
    trials = {name: trial_of(*pair) for name, pair in results.items() if any(pair)}
    collective = next(filter(None, (_result_of(facts.get(ALL_REDUCE)) for facts in machines.values())), {})
    result = judge(
        list(machines),
        probed_hosts(machines),
        arguments["tier"],
        arguments["accept"],
        [
            *about_machines,
            *trial_findings(trials),
            *all_reduce_findings(collective),
            *findings,
        ],
        all_reduce_lines(collective),
        [inventory.machine_name(node, hostvars[node]) for node in inventory.cluster_nodes(groups)],
    )
    return replace(result, findings=presence.with_tolerance(result.findings, present, absent_machines))


def _result_of(result: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The result of a task; {} if it was skipped."""
    return {} if not result or result.get("skip_reason") else result
