# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight of all machines: what each must have, its image included, and the judgement of the results."""

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

# Directories of a build context that do not change the image.
IGNORED_DIRECTORIES = {".git", "__pycache__"}
# The variables that the role preflight registers on a host: the result of machine_info, the two steps of the trial of
# the shared root, and the all-reduce.
RESULT = "__preflight"
TRIALS = ("__preflight_written", "__preflight_compared")
ALL_REDUCE = "__preflight_all_reduce"


class BuildError(Exception):
    """An image cannot be built; the message says what is wrong, where, and what to do."""


def image_builds(
    builds: Mapping[str, Mapping[str, Any]], images: Mapping[str, str], inventory_dir: str
) -> dict[str, dict[str, Any]]:
    """What the role ray_image needs to build images, by their names. Raises BuildError.

    builds, images: the variables cluster_image_builds and cluster_images. inventory_dir: where relative contexts begin.
    The result has `inputs`, the hash of what an image is built from, and `arguments` of the engine's command build.
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


def inputs_hash(context: Path, dockerfile: str, build_args: Sequence[str]) -> str:
    """The hash of all that goes into an image, except its base image. Raises BuildError."""
    if not (context / dockerfile).is_file():
        raise BuildError(
            f"{context / dockerfile} does not exist on this controller: correct context or dockerfile in "
            "cluster_image_builds"
        )
    digest = hashlib.sha256(json.dumps([dockerfile, *sorted(build_args)]).encode())
    try:
        for path in sorted(context.rglob("*")):
            name = path.relative_to(context)
            if IGNORED_DIRECTORIES.isdisjoint(name.parts) and (path.is_symlink() or path.is_file()):
                content, kind = _content_and_kind(path)
                digest.update(b"\n%s\0%s\0%s" % (os.fsencode(name), kind, hashlib.sha256(content).digest()))
    except OSError as error:
        raise BuildError(f"{error.filename} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:32]


def _content_and_kind(path: Path) -> tuple[bytes, bytes]:
    """What a file contains, and its kind. Other permissions and its times depend on the checkout, and are left out."""
    if path.is_symlink():
        return os.fsencode(path.readlink()), b"link"
    return path.read_bytes(), b"program" if path.stat().st_mode & 0o100 else b"file"


def has_image(engine: str, image: str) -> bool:
    """Whether the engine of this controller has an image; False without an engine."""
    try:
        return not subprocess.run([engine, "image", "inspect", image], capture_output=True, check=False).returncode
    except OSError:
        return False


def needed_images(
    hosts: Sequence[str], hostvars: HostVars, groups: Groups, images: Mapping[str, str], machines: Mapping[str, Machine]
) -> dict[str, str]:
    """The image that the nodes of each machine need, by the machine's name.

    hosts: those that represent machines. machines: those that were probed, by their names.
    """
    variables = {node: hostvars[node] for node in inventory.cluster_nodes(groups)}
    machine_of = {
        node: inventory.machine_name(host, variables[host])
        for host, placed in inventory.placement(variables, variables, hosts).items()
        for node in placed
    }
    with_workers = {machine_of[worker] for worker in groups.get(inventory.WORKERS, []) if worker in machine_of}
    probed = [machines[name] for name in with_workers if name in machines]
    needed = {}
    for node, settings in variables.items():
        image = images.get(nodes.accelerator_of(settings.get("ray_node_accelerator") or "auto", probed))
        # Without an image, the plan of the node fails with a message of its own.
        if image:
            needed[machine_of[node]] = image
    return needed


def machine_expectations(
    groups: Groups, hostvars: HostVars, hosts: Sequence[str], variables: Mapping[str, Variables]
) -> dict[str, dict[str, Any]]:
    """What each machine must have because of its nodes, by the host that represents it.

    hosts: of the run. variables: the typed variables of all nodes.
    """
    on_host = any(inventory.on_host_network(settings) for settings in variables.values())
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
            "ports": [asdict(ports) for ports in port_inventory.machine_ranges(placed, base, dashboard, on_host)],
            # The setting of the most demanding of its workers.
            "rdma": RDMA_ALWAYS if RDMA_ALWAYS in rdma else RDMA_AUTO if RDMA_AUTO in rdma and on_host else RDMA_NEVER,
            "groups": sorted({group for worker in workers for group in worker["ray_node_groups"]}),
            "object_store_gib": max((node["ray_node_shm_gib"] for node in (*workers, *heads)), default=0) / 2,
            "address": inventory.address_of(settings) if is_on_host else "",
            "trains": is_on_host and bool(workers),
            "head_storage": head["cluster_head_storage"] if heads else "",
            "network_env": {name: str(env[name]) for name in DERIVED_VARIABLES if name in env} if is_on_host else {},
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
    trials = {name: trial_result(*pair) for name, pair in results.items() if any(pair)}
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
