# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight over all hosts: what each machine must have, its images, and the result of all registered answers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.names import RDMA_ALWAYS, RDMA_AUTO, RDMA_NEVER
from ansible_collections.argus.verl.plugins.module_utils.network.derive import DERIVED_VARIABLES
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
from ansible_collections.argus.verl.plugins.module_utils.preflight.storage import trial_findings, trial_result
from ansible_collections.argus.verl.plugins.plugin_utils.inventory import inventory, nodes, port_inventory
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import Groups, HostVars, Variables
from ansible_collections.argus.verl.plugins.plugin_utils.presence import presence
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import Presence

# Images, as the inventory describes them: what they are built from, and which of them machines need.

NOT_INPUTS = {".git", "__pycache__"}


class BuildError(Exception):
    """An image cannot be built; the message says what is wrong, where, and what to do."""


def image_builds(
    builds: Mapping[str, Mapping[str, Any]], images: Mapping[str, str], inventory_dir: str
) -> dict[str, dict[str, Any]]:
    """The entries of cluster_image_builds by the names of their images, for the role ray_image.

    inputs: the hash of what an image is built from. arguments: of the engine's command build.
    """
    entries = {}
    for kind, build in builds.items():
        if kind not in images:
            raise BuildError(f"cluster_image_builds.{kind} has no image: add its name to cluster_images")
        context = Path(inventory_dir, Path(str(build["context"])).expanduser())
        dockerfile = str(build.get("dockerfile") or "Dockerfile")
        values = [f"{name}={value}" for name, value in (build.get("args") or {}).items()]
        options = [word for value in values for word in ("--build-arg", value)]
        entries[images[kind]] = {
            "inputs": inputs_hash(context, dockerfile, values),
            "push": boolean(build.get("push") or False),
            "arguments": ["--file", str(context / dockerfile), *options, str(context)],
        }
    return entries


def inputs_hash(context: Path, dockerfile: str, values: Sequence[str]) -> str:
    """A hash of all that goes into an image, but not of the image that it is built on."""
    if not (context / dockerfile).is_file():
        raise BuildError(
            f"{context / dockerfile} does not exist on this controller: correct context or dockerfile in "
            "cluster_image_builds"
        )
    digest = hashlib.sha256(json.dumps([dockerfile, *sorted(values)]).encode())
    try:
        for path in sorted(context.rglob("*")):
            name = path.relative_to(context)
            if NOT_INPUTS.isdisjoint(name.parts) and (path.is_symlink() or path.is_file()):
                content, kind = _content(path)
                digest.update(b"\n%s\0%s\0%s" % (os.fsencode(name), kind, hashlib.sha256(content).digest()))
    except OSError as error:
        raise BuildError(f"{error.filename} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:32]


def _content(path: Path) -> tuple[bytes, bytes]:
    """What a file holds, and its kind. The user's umask and the time of a checkout are no inputs."""
    if path.is_symlink():
        return os.fsencode(path.readlink()), b"link"
    return path.read_bytes(), b"program" if path.stat().st_mode & 0o100 else b"file"


def has_image(engine: str, image: str) -> bool:
    """Whether this controller has an image; without an engine, it has none."""
    try:
        return not subprocess.run([engine, "image", "inspect", image], capture_output=True, check=False).returncode
    except OSError:
        return False


def needed_images(
    hosts: Sequence[str], hostvars: HostVars, groups: Groups, images: Mapping[str, str], machines: Mapping[str, Machine]
) -> dict[str, str]:
    """The image of the nodes of each machine, by the machine's name.

    hosts: those that represent machines. machines: the probed ones, by their names.
    """
    variables = {node: hostvars[node] for node in inventory.cluster_nodes(groups)}
    machine_of = {
        node: inventory.machine_name(host, variables[host])
        for host, placed in inventory.placement(variables, variables, hosts).items()
        for node in placed
    }
    with_workers = {machine_of[worker] for worker in groups.get(inventory.WORKERS, []) if worker in machine_of}
    probed_hosts = [machines[name] for name in with_workers if name in machines]
    needed = {}
    for node, settings in variables.items():
        image = images.get(nodes.accelerator_of(settings.get("ray_node_accelerator") or "auto", probed_hosts))
        # Without one, the plan of the node fails with a message of its own.
        if image:
            needed[machine_of[node]] = image
    return needed


# Preflight over all hosts: what each machine must have, and the result of all that the role has registered.

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
            "rdma": RDMA_ALWAYS if RDMA_ALWAYS in rdma else RDMA_AUTO if RDMA_AUTO in rdma and on_host else RDMA_NEVER,
            "groups": sorted({group for worker in workers for group in worker["ray_node_groups"]}),
            "object_store_gib": max((node["ray_node_shm_gib"] for node in (*workers, *heads)), default=0) / 2,
            "address": inventory.address_of(settings) if network else "",
            "trains": network and bool(workers),
            "head_storage": head["cluster_head_storage"] if heads else "",
            "network_env": {name: str(env[name]) for name in DERIVED_VARIABLES if name in env} if network else {},
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
    hosts: Sequence[str], hostvars: HostVars, groups: Groups, least: int | None
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
        least=least,
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
    trials = {name: trial_result(*pair) for name, pair in results.items() if any(pair)}
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
