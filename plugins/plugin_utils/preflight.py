# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight of all machines: what each must have, and the judgement of what the role preflight has registered."""

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

# The variables that the role preflight registers on a host: the result of machine_info, the two steps of the trial of
# the shared root, and the all-reduce.
RESULT = "__preflight"
TRIALS = ("__preflight_written", "__preflight_compared")
ALL_REDUCE = "__preflight_all_reduce"


def machine_expectations(
    groups: Groups, hostvars: HostVars, hosts: Sequence[str], variables: Mapping[str, Variables]
) -> dict[str, dict[str, Any]]:
    """What each machine must have because of its nodes, by the host that represents it.

    hosts: of the run. variables: the typed variables of all nodes.
    """
    any_on_host = any(inventory.on_host_network(settings) for settings in variables.values())
    head = variables[groups[inventory.HEADS][0]]
    base, dashboard = head["cluster_port_base"], head["cluster_dashboard_port"]
    expected = {}
    for host, placed in port_inventory.nodes_by_machine(hostvars, groups, hosts).items():
        workers, heads = ([variables[node] for node in nodes] for nodes in (placed.workers, placed.heads))
        # All nodes of a machine use its network, or none does.
        settings = (workers or heads)[0]
        is_on_host, env = inventory.on_host_network(settings), settings["ray_node_env"]
        rdma = [worker["ray_node_rdma"] for worker in workers]
        expected[host] = {
            "ports": [asdict(ports) for ports in port_inventory.machine_ranges(placed, base, dashboard, any_on_host)],
            # The strongest setting of its workers.
            "rdma": ALWAYS if ALWAYS in rdma else AUTO if AUTO in rdma and any_on_host else NEVER,
            "groups": sorted({group for worker in workers for group in worker["ray_node_groups"]}),
            "object_store_gib": max((node["ray_node_shm_gib"] for node in (*workers, *heads)), default=0) / 2,
            "address": inventory.address_of(settings) if is_on_host else "",
            "trains": is_on_host and bool(workers),
            "head_storage": head["cluster_head_storage"] if heads else "",
            "network_env": {name: str(env[name]) for name in DERIVED if name in env} if is_on_host else {},
        }
    return expected


def preflight_plan(
    groups: Groups, hostvars: HostVars, hosts: Sequence[str], variables: Mapping[str, Variables]
) -> dict[str, Any]:
    """What the role needs before it probes machines: the nodes of each, and what it must have."""
    nodes = {node: hostvars[node] for node in inventory.cluster_nodes(groups)}
    return {
        "placement": inventory.placement(groups[inventory.NODES], hostvars, hosts),
        "expectations": machine_expectations(groups, nodes, hosts, variables),
    }


def derived_environments(hostvars: HostVars, hosts: Iterable[str]) -> dict[str, dict[str, str]]:
    """The variables of NCCL and gloo for jobs, by host, derived from what all machines answered."""
    machines = probed_hosts({host: hostvars[host] for host in hosts})
    return derived_environment({host: machine.context for host, machine in machines.items()})


def probed_hosts(variables: Mapping[str, Mapping[str, Any]]) -> dict[str, ProbedHost]:
    """The probed hosts, by the names of `variables`, without those that could not be reached or failed."""
    results = {name: host_variables.get(RESULT) or {} for name, host_variables in variables.items()}
    return {name: ProbedHost.from_json(name, result) for name, result in results.items() if "machine" in result}


def missing_image_findings(
    arguments: Mapping[str, Any], hostvars: HostVars, groups: Groups
) -> tuple[list[Finding], list[str]]:
    """Findings about images that machines lack, and those of these images that only this controller has."""
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
    """The nodes of the run, the machines of absent nodes, and findings about silent machines and wrong clocks.

    hosts: those that represent the machines of the run.
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
    """The judgement of all machines of the run. findings: those of the controller."""
    hosts = arguments["hosts"]
    present, absent_machines, about_machines = machine_presence(hosts, hostvars, groups, arguments["least"])
    machines = {inventory.machine_name(host, hostvars[host]): hostvars[host] for host in hosts}
    results = {name: [_result_unless_skipped(facts.get(fact)) for fact in TRIALS] for name, facts in machines.items()}
    trials = {name: trial_of(*pair) for name, pair in results.items() if any(pair)}
    collective = next(filter(None, (_result_unless_skipped(facts.get(ALL_REDUCE)) for facts in machines.values())), {})
    result = judge(
        list(machines),
        probed_hosts(machines),
        arguments["tier"],
        arguments["accept"],
        [*about_machines, *trial_findings(trials), *all_reduce_findings(collective), *findings],
        all_reduce_lines(collective),
        [inventory.machine_name(node, hostvars[node]) for node in inventory.cluster_nodes(groups)],
    )
    return replace(result, findings=presence.with_tolerance(result.findings, present, absent_machines))


def _result_unless_skipped(result: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The result of a task; {} if it was skipped or not run."""
    return {} if not result or result.get("skip_reason") else result
