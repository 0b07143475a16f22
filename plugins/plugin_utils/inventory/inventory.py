# SPDX-License-Identifier: GPL-3.0-or-later
"""The groups of an inventory, the machine of each node, and the checks of all this before any host is touched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ...module_utils.argus.common.findings import WARNING, Finding
from ...module_utils.argus.common.text import spelling_hint
from ...module_utils.cluster.names import CHECKS
from ...module_utils.cluster.process_host import is_reachable
from .nodes import CONTAINER, PROCESS

# As Ansible has them: the variables of a host, those of all hosts, and the hosts of all groups.
Variables = Mapping[str, Any]
HostVars = Mapping[str, Variables]
Groups = Mapping[str, "list[str]"]

# The groups of the inventory.
NODES = "ray"
HEADS = "head"
WORKERS = "workers"
# The value of ansible_connection for the controller itself.
LOCAL = "local"
# The prefixes of this collection: an unknown variable with one of them is misspelt. Other variables are the user's.
VARIABLE_PREFIXES = ("cluster_", "preflight_", "ray_node_", "staging_", "job_", "shared_root", "slurm_")
# Connections that pass on all that a host answers, and the collection's, which does not.
PLAIN_SSH, OWN_SSH = ("ssh", "ansible.builtin.ssh", "smart", "paramiko"), "argus.verl.ssh"
# Docker's rule for the names of containers and networks, restricted to valid host names.
NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def runtime_of(variables: Variables) -> str:
    return str(variables.get("ray_node_runtime") or CONTAINER)


def on_host_network(variables: Variables) -> bool:
    return runtime_of(variables) == PROCESS or variables.get("cluster_network") == "host"


def machine_name(node: str, variables: Variables) -> str:
    """The name of a node's machine for people. If its nodes have several names for it, people know the first node's."""
    local = "localhost" if variables.get("ansible_connection") == LOCAL else node
    return node if runtime_of(variables) == PROCESS else str(variables.get("ray_node_machine") or local)


def machine_key(node: str, variables: Variables) -> tuple[str, ...]:
    """A key that the nodes of one machine share. A process has its host for itself."""
    name = machine_name(node, variables)
    if variables.get("ray_node_machine") or name != node or runtime_of(variables) == PROCESS:
        return (name,)
    connection = str(variables.get("ansible_connection") or "ssh")
    return connection, str(variables.get("ansible_host") or node), str(variables.get("ansible_port") or "")


def placement(nodes: Iterable[str], hostvars: HostVars, reached: Iterable[str] = ()) -> dict[str, list[str]]:
    """The nodes of each machine, by the host that represents it, on which tasks for the machine run.

    reached: the hosts of the run. The first node among them represents its machine; without any, the first node.
    """
    machines: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        machines.setdefault(machine_key(node, hostvars[node]), []).append(node)
    reached_nodes = set(reached)
    return {next((node for node in placed if node in reached_nodes), placed[0]): placed for placed in machines.values()}


def address_of(variables: Variables) -> str:
    """Where other nodes reach a node on its machine's network; "" if the inventory does not say it."""
    host = str(variables.get("ansible_host") or "")
    return str(variables.get("ray_node_address") or (host if is_reachable(host) else ""))


def cluster_nodes(groups: Groups) -> list[str]:
    """The heads and workers, also those that are missing in the group of all nodes by mistake."""
    return list(dict.fromkeys([*groups.get(HEADS, []), *groups.get(WORKERS, [])]))


def source_findings(sources: Iterable[str]) -> list[Finding]:
    """Errors for missing inventories, which Ansible would ignore. A source with a comma is a list of hosts."""
    missing = [source for source in sources if "," not in source and not Path(source).exists()]
    return [Finding(source, "does not exist", "correct the path after -i") for source in missing]


def no_hosts_findings(sources: Sequence[str]) -> list[Finding]:
    """Why Ansible found no hosts."""
    remedy = "add hosts; Ansible's warnings above tell what it could not read. In YAML, each host ends with a colon: "
    empty = Finding(", ".join(sources) or "inventory", "has no hosts", f"{remedy}hosts: {{gpu-0: , gpu-1: }}")
    return source_findings(sources) or [empty]


def group_findings(groups: Groups) -> Iterator[Finding]:
    """Check that there are one head and workers, and all nodes in the group of nodes."""
    heads, workers = groups.get(HEADS, []), groups.get(WORKERS, [])
    if len(heads) > 1:
        problem = f"has {len(heads)} hosts ({', '.join(heads)})"
        yield Finding(f"group {HEADS}", problem, "a cluster has one head: keep exactly one")
    for name, hosts in ((HEADS, heads), (WORKERS, workers)):
        if not hosts:
            remedy = f"add the head, and at least one worker; in YAML: {name}: {{hosts: {{gpu-0: }}}}"
            yield Finding(f"group {name}", "has no hosts", remedy)
    if outside := [node for node in cluster_nodes(groups) if node not in groups.get(NODES, [])]:
        remedy = (
            f"make head and workers children of {NODES}: as in inventories/prod, or in INI below [{NODES}:children]"
        )
        yield Finding(", ".join(outside), f"is not in the group {NODES}", remedy)


def role_findings(hostvars: HostVars, groups: Groups) -> Iterator[Finding]:
    """Find nodes that are both head and worker. A machine can be both, but with a node for each."""
    for node in sorted(set(groups.get(HEADS, [])) & set(groups.get(WORKERS, []))):
        remedy = "the head never trains: remove it from workers"
        if runtime_of(hostvars[node]) != PROCESS:
            remedy = f"make it two nodes, {node}-head in head and {node} in workers, with the same ansible_host"
        yield Finding(node, "is in both head and workers", remedy)


def limit_findings(reached: Iterable[str], target_groups: Iterable[str], groups: Groups) -> Iterator[Finding]:
    """Check that --limit leaves a host of each group: Ansible would skip a group without hosts, and succeed.

    reached: the hosts that --limit leaves. target_groups: the groups that the playbook works on.
    """
    reached_nodes = set(reached)
    for group in target_groups:
        if groups.get(group) and reached_nodes.isdisjoint(groups[group]):
            remedy = f"add some of them: {', '.join(groups[group])}"
            yield Finding(f"group {group}", "--limit leaves out all of its hosts", remedy)


def node_findings(node: str, settings: Variables) -> Iterator[Finding]:
    if not NODE_NAME.fullmatch(node):
        remedy = "use lower-case letters, digits and dashes, at most 63; an address belongs in ansible_host"
        yield Finding(node, "is not a valid node name", remedy)
    address, is_process = address_of(settings), runtime_of(settings) == PROCESS
    # The address of a process is found on its host.
    if on_host_network(settings) and not is_reachable(address) and (address or not is_process):
        remedy = "set the IP address at which the other nodes reach this one; a loopback makes gloo and NCCL fail"
        yield Finding(node, f"ray_node_address is {address!r} with cluster_network: host", remedy)


def runtime_findings(nodes: Iterable[str], hostvars: HostVars) -> Iterator[Finding]:
    kinds: dict[str, str] = {}
    for node in nodes:
        variables, runtime = hostvars[node], runtime_of(hostvars[node])
        kinds.setdefault(runtime, node)
        if runtime not in (CONTAINER, PROCESS):
            remedy = f"set {CONTAINER}, or {PROCESS} for a host that is itself the place where Ray runs"
            yield Finding(node, f"ray_node_runtime is {runtime!r}", remedy)
        if runtime != PROCESS:
            continue
        if not PurePosixPath(str(variables.get("ray_node_python") or "")).is_absolute():
            remedy = "set the absolute path of the Python in whose environment Ray and verl are installed"
            yield Finding(node, "ray_node_python is not set to a path", remedy)
        if (network := variables.get("cluster_network", "host")) != "host":
            yield Finding(node, f"cluster_network is {network!r}", "remove it: a process uses its host's network")
        if variables.get("ray_node_machine", node) != node:
            yield Finding(node, "ray_node_machine is another host", "remove it: a process runs on its own host")
        if variables.get("ansible_connection", "ssh") in PLAIN_SSH:
            text = "jobs run there as the user of Ansible: what they answer in place of a module would act on all hosts"
            yield Finding(node, text, f"set ansible_connection: {OWN_SSH}, which has the options of ssh")
    if len(kinds) > 1:
        text = f"ray_node_runtime differs: {', '.join(f'{node} {kind}' for kind, node in kinds.items())}"
        yield Finding(f"group {NODES}", text, "set one value for all nodes of the cluster")


def placement_findings(hostvars: HostVars, groups: Groups) -> Iterator[Finding]:
    """Check that nodes can reach each other, and that no two machines have the same address."""
    nodes = cluster_nodes(groups)
    machines = {machine_name(host, hostvars[host]): placed for host, placed in placement(nodes, hostvars).items()}
    own_network = [node for node in nodes if not on_host_network(hostvars[node])]
    if own_network and len(machines) > 1:
        problem = f"a container network does not span {len(machines)} machines ({', '.join(machines)})"
        remedy = "set cluster_network: host, and for each node an IP address as ansible_host, or as ray_node_address"
        yield Finding(", ".join(own_network), problem, remedy)
    # By address, a node of each machine that has it. Nodes of one machine share an address.
    holders: dict[str, dict[str, str]] = {}
    for machine, placed in machines.items():
        for node in placed:
            variables = hostvars[node]
            # A process finds its address itself, so only one that is set counts.
            address = variables.get("ray_node_address") if runtime_of(variables) == PROCESS else address_of(variables)
            if on_host_network(variables) and address:
                holders.setdefault(str(address), {})[machine] = node
    for address, by_machine in holders.items():
        if len(by_machine) > 1:
            names = ", ".join(by_machine)
            problem = f"are on {len(by_machine)} machines ({names}) with the same ray_node_address {address}"
            is_process = any(runtime_of(hostvars[node]) == PROCESS for node in by_machine.values())
            same = "remove it: processes find theirs" if is_process else "set the same ray_node_machine"
            remedy = f"correct the address, or, for nodes of one machine, {same}"
            yield Finding(", ".join(by_machine.values()), problem, remedy)


def _host_value(name: str, variables: Variables) -> Any:
    """The value to check. A process may have "~" in cluster_state_dir: modules expand it, while an engine could not."""
    value = variables[name]
    if name == "cluster_state_dir" and runtime_of(variables) == PROCESS and str(value).startswith("~/"):
        return value[1:]
    return value


def value_findings(hosts: Iterable[str], hostvars: HostVars) -> list[Finding]:
    """Check names and paths that machines get, with one finding for all hosts with the same value."""
    problems: dict[tuple[str, str, str], list[str]] = {}
    for host in hosts:
        variables = hostvars[host]
        for name, check in CHECKS.items():
            # The value may be null, which replaces the default.
            if name in variables and (remedy := check(_host_value(name, variables))):
                problems.setdefault((name, repr(variables[name]), remedy), []).append(host)
    return [Finding(", ".join(at), f"{name} is {value}", remedy) for (name, value, remedy), at in problems.items()]


def trust_findings(hosts: Iterable[str], hostvars: HostVars) -> Iterator[Finding]:
    """Check that jobs can write neither the state of the cluster nor images, and are not root."""
    root_hosts, archive_hosts = [], []
    for host in hosts:
        variables = hostvars[host]
        shared_root = variables.get("shared_root_source") or variables.get("shared_root")
        path = PurePosixPath(str(variables.get("cluster_state_dir") or ""))
        if shared_root and PurePosixPath(str(shared_root)) in (path, *path.parents):
            text = f"cluster_state_dir {path} lies in the shared root"
            yield Finding(host, text, "move it to where jobs cannot write")
        if str(variables.get("ray_node_user") or "").startswith("0:"):
            root_hosts.append(host)
        archive = variables.get("cluster_image_archive")
        url = str(archive.get("url") or "") if isinstance(archive, Mapping) else ""
        if shared_root and PurePosixPath(str(shared_root)) in PurePosixPath(url.removeprefix("file://")).parents:
            archive_hosts.append(host)
    if archive_hosts:
        text = "cluster_image_archive.url is on the shared root, where jobs can replace what a machine's engine opens"
        remedy = "name a file on another file system, a web server, or its path on the controller"
        yield Finding(", ".join(archive_hosts), text, remedy)
    if root_hosts:
        remedy = 'set another user, such as "61000:61000", or remove ray_node_user for the default'
        text = "ray_node_user is root: so is every job in its container, and on the shared root"
        yield Finding(", ".join(root_hosts), text, remedy, WARNING)


def unknown_variable_findings(
    hosts: Sequence[str], hostvars: Mapping[str, Iterable[str]], names: set[str]
) -> Iterator[Finding]:
    """Find variables with a prefix of this collection that nothing reads."""
    unknown: dict[str, list[str]] = {}
    for host in hosts:
        for name in hostvars[host]:
            if name not in names and str(name).startswith(VARIABLE_PREFIXES):
                unknown.setdefault(str(name), []).append(host)
    for name, at in unknown.items():
        where = ", ".join(at) if len(at) < len(hosts) or len(hosts) == 1 else "all hosts"
        remedy = spelling_hint(name, names) or "remove it; the roles' READMEs list all variables"
        yield Finding(where, f"variable {name} is unknown", remedy)


def validate(hostvars: HostVars, groups: Groups, variables: Iterable[str]) -> list[Finding]:
    """All problems of an inventory that are visible without touching a host, except those of ports.

    variables: the names of all variables that the collection reads.
    """
    nodes = cluster_nodes(groups)
    return [
        *group_findings(groups),
        *role_findings(hostvars, groups),
        *(finding for node in nodes for finding in node_findings(node, hostvars[node])),
        *runtime_findings(nodes, hostvars),
        *placement_findings(hostvars, groups),
        *value_findings(nodes, hostvars),
        *trust_findings(nodes, hostvars),
        *unknown_variable_findings(nodes, hostvars, set(variables)),
    ]


def summary(hostvars: HostVars, groups: Groups, default_name: str) -> str:
    """A line about a correct inventory. default_name: the cluster's name if the inventory sets none."""
    name = hostvars[groups[HEADS][0]].get("cluster_name", default_name)
    workers = len(groups[WORKERS])
    return f"Inventory fine: cluster {name}, 1 head, {workers} {'worker' if workers == 1 else 'workers'}"
