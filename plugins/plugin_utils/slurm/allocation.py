# SPDX-License-Identifier: GPL-3.0-or-later
"""An allocation of Slurm, as its commands print it, and the hosts of an inventory that it becomes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, product
from typing import Any

# The text that Slurm's commands print has the same form in all releases; `--json` changes with each.

# A key and its value; values may have spaces, and a key begins with a capital letter.
FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_/:]*)=")
EMPTY_VALUES = ("", "(null)", "None", "N/A", "Unknown", "UNLIMITED")
# Names of nodes, with numbers in brackets.
NODELIST_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
NUMBER_RANGE = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?")
# Limits untrusted input, which a program of a job may have printed. No cluster of Slurm has as many.
MAX_NODES = 1 << 16
GPU_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(=]+)?[:=]([0-9]+)")


class SlurmError(Exception):
    """A command of Slurm failed, or printed something that cannot be read; the message has what it said."""


def fields_of(line: str) -> list[tuple[str, str]]:
    """The keys and values of a line of `scontrol show --oneliner`, in their order: some keys come several times."""
    keys = list(FIELD.finditer(line))
    ends = [key.start() for key in keys[1:]] + [len(line)]
    return [(key[1], line[key.end() : end].strip()) for key, end in zip(keys, ends, strict=False)]


def records_of(output: str) -> Iterator[dict[str, str]]:
    """The lines of `scontrol show --oneliner`; of a key that comes several times, the first value."""
    for line in filter(str.strip, output.splitlines()):
        yield dict(reversed(fields_of(line)))


def field_value(record: Mapping[str, str], key: str) -> str:
    """A value, or "" if Slurm has none."""
    value = record.get(key, "")
    return "" if value in EMPTY_VALUES else value


def expand_nodelist(nodelist: str) -> list[str]:
    """The names in a list of nodes such as `gpu-[01-03,7],r[1-2]n[1-4]`."""
    names: list[str] = []
    parts = NODELIST_ITEM.findall(nodelist)
    if ",".join(parts) != nodelist:
        raise SlurmError(f"{nodelist!r} is not a list of nodes")
    for part in parts:
        # Texts, and the numbers between them.
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices, count = [], 1
        for index, piece in enumerate(pieces):
            choices.append([*islice(_expand_ranges(piece), MAX_NODES + 1)] if index % 2 else [piece])
            count *= len(choices[-1])
            if len(names) + count > MAX_NODES:
                raise SlurmError(f"{nodelist[:100]!r} has more than {MAX_NODES} nodes")
        names += map("".join, product(*choices))
    return names


def _expand_ranges(ranges: str) -> Iterator[str]:
    for number_range in ranges.split(","):
        first, _dash, last = number_range.partition("-")
        if not NUMBER_RANGE.fullmatch(number_range):
            raise SlurmError(f"{ranges[:100]!r} are not numbers of nodes")
        # Zero-padded like the first number.
        yield from (f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1))


def gpu_count(gres: str) -> int:
    """The GPUs in a list of resources such as `gpu:h100:8(IDX:0-7),shard:4`, of all types together."""
    return sum(int(count) for count in GPU_GRES.findall(gres))


def cpu_count(identifiers: str) -> int:
    """How many CPUs a list such as `0-3,8` has."""
    try:
        return len(list(islice(_expand_ranges(identifiers), MAX_NODES))) if identifiers else 0
    except SlurmError:
        return 0


def resources_by_node(line: str) -> dict[str, dict[str, str]]:
    """What a job has on each of its nodes, from a line of `scontrol show job --details --oneliner`.

    Keys are CPU_IDs, Mem and GRES. Nodes with the same resources share one group, which starts with the key Nodes.
    """
    details: dict[str, dict[str, str]] = {}
    group = 0

    def group_number(pair: tuple[str, str]) -> int:
        nonlocal group
        group += pair[0] == "Nodes"
        return group

    for group_index, pairs in groupby(fields_of(line), group_number):
        resources = dict(pairs)
        if group_index:
            details |= dict.fromkeys(expand_nodelist(resources["Nodes"]), resources)
    return details


RUNNING, PENDING = "RUNNING", "PENDING"
# The name of the head in the inventory: its host may have a worker, too.
HEAD = "ray-head"
# Host variables that no role documents: those of the connection, and informational ones.
SLURM_INVENTORY_VARIABLES = ("slurm_job_name", "slurm_job_id", "slurm_node", "slurm_component", "slurm_memory_mib")
# The administrator wants these nodes back, or Slurm has lost them. "*" after a state: the node does not answer.
UNAVAILABLE_STATES = ("DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "DOWN", "NOT_RESPONDING")
STATE = re.compile(r"[A-Z_]+")


@dataclass(frozen=True)
class AllocatedHost:
    """A host of an allocation, with what the job has of it.

    address: an IPv4 address if the host has one. component: of a heterogeneous job; None for the others.
    cpus, gpus: 0 if there are none, or it is unknown. memory_mib: 0 if Slurm does not manage memory.
    leaving: why it is not to be used any more, or "".
    """

    name: str
    address: str
    component: int | None = None
    cpus: int = 0
    gpus: int = 0
    memory_mib: int = 0
    leaving: str = ""


@dataclass(frozen=True)
class Allocation:
    """A job of Slurm. hosts: empty until it runs. ends_at: in seconds since the epoch, None without a time limit."""

    job_id: int
    name: str
    state: str
    reason: str = ""
    hosts: tuple[AllocatedHost, ...] = ()
    starts_at: float | None = None
    ends_at: float | None = None

    @property
    def workers(self) -> tuple[AllocatedHost, ...]:
        """The hosts with workers: all, or without the first component of a heterogeneous job, which is the head's."""
        return tuple(host for host in self.hosts if host.component != 0)


def number_value(record: Mapping[str, str], key: str) -> float | None:
    """A value as a number, or None if it is none, such as Unknown."""
    try:
        return float(field_value(record, key))
    except ValueError:
        return None


def hosts_of(
    line: str, record: Mapping[str, str], addresses: Mapping[str, str], leaving: Mapping[str, str]
) -> list[AllocatedHost]:
    details = resources_by_node(line)
    offset = field_value(record, "HetJobOffset")
    hosts = []
    for name in expand_nodelist(field_value(record, "NodeList")):
        resources = details.get(name, {})
        gres = field_value(resources, "GRES")
        hosts.append(
            AllocatedHost(
                name=name,
                address=addresses.get(name, name),
                component=int(offset) if offset.isdecimal() else None,
                cpus=cpu_count(field_value(resources, "CPU_IDs")),
                gpus=gpu_count(gres),
                memory_mib=int(number_value(resources, "Mem") or 0),
                leaving=leaving.get(name, ""),
            )
        )
    return hosts


def parse_allocation(
    job_output: str, node_output: str = "", resolve: Callable[[str], Sequence[str]] = lambda name: ()
) -> Allocation | None:
    """The allocation in the output of `scontrol show job --details --oneliner`; None if there is none.

    node_output: of `scontrol show node --oneliner`, for addresses and states. resolve: the addresses of a name.
    """
    lines = [line for line in job_output.splitlines() if field_value(dict(fields_of(line)), "JobId")]
    jobs = [(line, next(records_of(line))) for line in lines]
    if not jobs:
        return None
    jobs.sort(key=lambda job: int(field_value(job[1], "HetJobOffset") or 0))
    first = jobs[0][1]
    addresses, leaving = {}, {}
    for node in records_of(node_output):
        name = field_value(node, "NodeName")
        addresses[name] = reachable_address(field_value(node, "NodeAddr") or name, resolve)
        leaving[name] = leaving_reason(field_value(node, "State"), field_value(node, "Reason"))
    state = field_value(first, "JobState")
    # Ends with its first component, or earlier if another has a shorter limit.
    ends = [end for _line, job in jobs if (end := number_value(job, "EndTime")) is not None]
    return Allocation(
        job_id=int(field_value(first, "HetJobId") or first["JobId"]),
        name=field_value(first, "JobName"),
        state=state,
        reason=next(filter(None, (field_value(job, "Reason") for _line, job in jobs)), ""),
        hosts=tuple(host for line, job in jobs for host in hosts_of(line, job, addresses, leaving) if state == RUNNING),
        starts_at=number_value(first, "StartTime"),
        ends_at=min(ends, default=None) if state == RUNNING else None,
    )


def leaving_reason(state: str, reason: str) -> str:
    """Why a node is not to be used any more, in Slurm's words; "" if it is."""
    parts = STATE.findall(state)
    # A node that does not answer has an asterisk.
    if not {*parts} & {*UNAVAILABLE_STATES} and "*" not in state:
        return ""
    # Who said so, and when, follows in brackets.
    explanation = reason.partition(" [")[0]
    return f"{state}{f' ({explanation})' if explanation else ''}"


def reachable_address(name: str, resolve: Callable[[str], Sequence[str]]) -> str:
    """The address at which nodes reach a host: of several, the first IPv4 address that others can reach.

    Ray, gloo and NCCL then agree on one, where a name stands for addresses of two families.
    """
    for address in [name, *resolve(name)]:
        if is_usable(address):
            return address
    return name


def is_usable(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return parsed.version == 4 and not (parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified)


def host_name(node: str) -> str:
    """The name of a node in the inventory: those of Slurm may have capitals, dots and underscores."""
    return re.sub(r"[^a-z0-9-]", "-", node.lower()).strip("-")


@dataclass(frozen=True)
class InventoryHost:
    """A host of the inventory, with its groups and variables."""

    name: str
    group: str
    variables: Mapping[str, Any]


def inventory_hosts(allocation: Allocation) -> list[InventoryHost]:
    if not allocation.hosts:
        return []
    head = InventoryHost(HEAD, "head", _variables(allocation, allocation.hosts[0]))
    names: dict[str, str] = {}
    hosts = [head]
    for host in allocation.workers:
        name = host_name(host.name)
        if names.setdefault(name, host.name) != host.name or name == HEAD:
            raise SlurmError(f"{host.name} cannot be told from {names[name]} in the inventory")
        size = {"ray_node_gpus": host.gpus, "ray_node_cpus": host.cpus, "slurm_memory_mib": host.memory_mib}
        present = {key: value for key, value in size.items() if value}
        hosts.append(InventoryHost(name, "workers", {**_variables(allocation, host), **present}))
    return hosts


def _variables(allocation: Allocation, host: AllocatedHost) -> dict[str, Any]:
    component = {} if host.component is None else {"slurm_component": host.component}
    return {"ansible_host": host.address, "slurm_node": host.name, **component}


def group_variables(allocation: Allocation, uid: int) -> dict[str, Any]:
    """The variables of the group ray. uid: of the job's user."""
    ends = {} if allocation.ends_at is None else {"cluster_ends_at": int(allocation.ends_at)}
    return {
        "slurm_job_id": allocation.job_id,
        "ray_node_runtime": "process",
        # The step of the job makes and removes it on each host.
        "cluster_state_dir": f"/tmp/argus-verl-{uid}-{allocation.job_id}",  # noqa: S108
        **ends,
    }


def newest_job(listed: str) -> int | None:
    """The newest running job in lines of id and state, or else the newest that waits.

    The id of a component of a heterogeneous job is "17+1"; commands take that of the whole job.
    """
    pairs = (line.replace("+", " ").split() for line in listed.splitlines())
    jobs = sorted(((int(pair[0]), pair[-1]) for pair in pairs if len(pair) > 1 and pair[0].isdecimal()), reverse=True)
    for preferred in (RUNNING, PENDING, "CONFIGURING", "SUSPENDED"):
        for job_id, state in jobs:
            if state == preferred:
                return job_id
    return None
