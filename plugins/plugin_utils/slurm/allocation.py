# SPDX-License-Identifier: GPL-3.0-or-later
"""A batch job of Slurm with its hosts, parsed from what Slurm's commands print, and the inventory that it becomes.

Their text has the same form in all releases of Slurm, while their JSON changes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, product
from typing import Any

# A key in a line. The value follows up to the next key and may have spaces; a key begins with a capital letter.
KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_/:]*)=")
EMPTY_VALUES = ("", "(null)", "None", "N/A", "Unknown", "UNLIMITED")
# One name or one group of names, with numbers in brackets.
NODELIST_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
NUMBER_RANGE = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?")
# Limits input that a job may have forged; no cluster has as many nodes.
MAX_NODES = 1 << 16
# The number of GPUs in a list of generic resources.
GPU_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(=]+)?[:=]([0-9]+)")
RUNNING, PENDING = "RUNNING", "PENDING"
# The states of nodes that the administrator wants back, or that Slurm has lost.
UNAVAILABLE_STATES = ("DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "DOWN", "NOT_RESPONDING")
STATE_WORD = re.compile(r"[A-Z_]+")
# The name of the head in the inventory. It is not the host's, as the host may have a worker too.
HEAD_NAME = "ray-head"
# Variables that no role documents: they are for the connection plugin srun, or for people.
SLURM_INVENTORY_VARIABLES = ("slurm_job_name", "slurm_job_id", "slurm_node", "slurm_component", "slurm_memory_mib")


class SlurmError(Exception):
    """A command of Slurm failed, or printed something that cannot be parsed; the message has its text."""


def fields_of(line: str) -> list[tuple[str, str]]:
    """The keys and values in a line of `scontrol show --oneliner`, in their order; some keys occur several times."""
    keys = list(KEY.finditer(line))
    ends = [key.start() for key in keys[1:]] + [len(line)]
    return [(key[1], line[key.end() : end].strip()) for key, end in zip(keys, ends, strict=False)]


def records_of(output: str) -> Iterator[dict[str, str]]:
    """A mapping for each line of `scontrol show --oneliner`, with the first value of each key."""
    for line in filter(str.strip, output.splitlines()):
        yield dict(reversed(fields_of(line)))


def field_value(record: Mapping[str, str], key: str) -> str:
    """The value of a key; "" if there is none, or Slurm prints that it has none."""
    value = record.get(key, "")
    return "" if value in EMPTY_VALUES else value


def expand_nodelist(nodelist: str) -> list[str]:
    """The names of nodes in a list such as `gpu-[01-03,7],r[1-2]n[1-4]`. Raises SlurmError."""
    names: list[str] = []
    parts = NODELIST_ITEM.findall(nodelist)
    if ",".join(parts) != nodelist:
        raise SlurmError(f"{nodelist!r} is not a list of nodes")
    for part in parts:
        # Texts at even indices, and the numbers in brackets at odd ones.
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
    """The number of GPUs of all types in a list of resources such as `gpu:h100:8(IDX:0-7),shard:4`."""
    return sum(int(count) for count in GPU_GRES.findall(gres))


def cpu_count(identifiers: str) -> int:
    """The number of CPUs in a list such as `0-3,8`; 0 if it cannot be parsed."""
    try:
        return len(list(islice(_expand_ranges(identifiers), MAX_NODES))) if identifiers else 0
    except SlurmError:
        return 0


def resources_by_node(line: str) -> dict[str, dict[str, str]]:
    """The resources of a job on each of its nodes, from a line of `scontrol show job --details --oneliner`.

    Their keys are CPU_IDs, Mem and GRES. In the line, nodes with equal resources form a group that begins with the key
    Nodes.
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


def number_value(record: Mapping[str, str], key: str) -> float | None:
    """The value of a key as a number; None for another value, such as Unknown."""
    try:
        return float(field_value(record, key))
    except ValueError:
        return None


@dataclass(frozen=True)
class AllocatedHost:
    """A host of an allocation, and the job's share of its resources."""

    name: str
    # An IPv4 address if the host has one, else its name.
    address: str
    # The index of its component in a heterogeneous job; None in other jobs.
    component: int | None = None
    # 0 if there are none, or the number is unknown.
    cpus: int = 0
    gpus: int = 0
    # 0 if Slurm does not manage memory.
    memory_mib: int = 0
    # Why the host should not be used any more, in Slurm's words; "" if it may be used.
    leaving: str = ""


@dataclass(frozen=True)
class Allocation:
    """A job of Slurm. Times are in seconds since the epoch."""

    job_id: int
    name: str
    state: str
    # Why it waits or has ended, in Slurm's words.
    reason: str = ""
    # Empty until it runs.
    hosts: tuple[AllocatedHost, ...] = ()
    # None if Slurm does not know it yet.
    starts_at: float | None = None
    # None without a time limit, and until the job runs.
    ends_at: float | None = None

    @property
    def workers(self) -> tuple[AllocatedHost, ...]:
        """The hosts of workers: all of them, but the first component of a heterogeneous job is the head's."""
        return tuple(host for host in self.hosts if host.component != 0)


def component_hosts(
    line: str, record: Mapping[str, str], addresses: Mapping[str, str], leaving: Mapping[str, str]
) -> list[AllocatedHost]:
    """The hosts of a job, or of a component of a heterogeneous one. line: of scontrol. record: its keys and values."""
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
    """The allocation in the output of `scontrol show job --details --oneliner`; None if that has no job.

    node_output: of `scontrol show node --oneliner`, for addresses and states. resolve: returns the addresses of a name.
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
    # A heterogeneous job ends when the first of its components does.
    ends = [end for _line, job in jobs if (end := number_value(job, "EndTime")) is not None]
    return Allocation(
        job_id=int(field_value(first, "HetJobId") or first["JobId"]),
        name=field_value(first, "JobName"),
        state=state,
        reason=next(filter(None, (field_value(job, "Reason") for _line, job in jobs)), ""),
        hosts=tuple(
            host for line, job in jobs for host in component_hosts(line, job, addresses, leaving) if state == RUNNING
        ),
        starts_at=number_value(first, "StartTime"),
        ends_at=min(ends, default=None) if state == RUNNING else None,
    )


def leaving_reason(state: str, reason: str) -> str:
    """Why a node should not be used any more, in Slurm's words; "" if it may be used."""
    parts = STATE_WORD.findall(state)
    # An asterisk marks a node that does not answer.
    if not {*parts} & {*UNAVAILABLE_STATES} and "*" not in state:
        return ""
    # Slurm adds the user and the time in brackets.
    explanation = reason.partition(" [")[0]
    return f"{state}{f' ({explanation})' if explanation else ''}"


def reachable_address(name: str, resolve: Callable[[str], Sequence[str]]) -> str:
    """The first IPv4 address of a host that others can reach, or else its name.

    With a name that has IPv4 and IPv6 addresses, Ray, gloo and NCCL might choose different ones.
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


def newest_job_id(job_list: str) -> int | None:
    """The id of the newest job that runs, or else of the newest that waits; None without any.

    job_list: lines with id and state. A component of a heterogeneous job has an id like "17+1"; 17 is the whole job's.
    """
    pairs = (line.replace("+", " ").split() for line in job_list.splitlines())
    jobs = sorted(((int(pair[0]), pair[-1]) for pair in pairs if len(pair) > 1 and pair[0].isdecimal()), reverse=True)
    for preferred in (RUNNING, PENDING, "CONFIGURING", "SUSPENDED"):
        for job_id, state in jobs:
            if state == preferred:
                return job_id
    return None


def host_name(node: str) -> str:
    """The name in the inventory for a node of Slurm, whose own name may have capitals, dots and underscores."""
    return re.sub(r"[^a-z0-9-]", "-", node.lower()).strip("-")


@dataclass(frozen=True)
class InventoryHost:
    """A host of the inventory, with its groups and variables."""

    name: str
    group: str
    variables: Mapping[str, Any]


def inventory_hosts(allocation: Allocation) -> list[InventoryHost]:
    """The head on the first host, and a worker on each host for workers. Raises SlurmError if two names collide."""
    if not allocation.hosts:
        return []
    head = InventoryHost(HEAD_NAME, "head", _variables(allocation, allocation.hosts[0]))
    names: dict[str, str] = {}
    hosts = [head]
    for host in allocation.workers:
        name = host_name(host.name)
        if names.setdefault(name, host.name) != host.name or name == HEAD_NAME:
            raise SlurmError(f"{host.name} cannot be told from {names[name]} in the inventory")
        size = {"ray_node_gpus": host.gpus, "ray_node_cpus": host.cpus, "slurm_memory_mib": host.memory_mib}
        present = {key: value for key, value in size.items() if value}
        hosts.append(InventoryHost(name, "workers", {**_variables(allocation, host), **present}))
    return hosts


def _variables(allocation: Allocation, host: AllocatedHost) -> dict[str, Any]:
    component = {} if host.component is None else {"slurm_component": host.component}
    return {"ansible_host": host.address, "slurm_node": host.name, **component}


def group_variables(allocation: Allocation, uid: int) -> dict[str, Any]:
    """The variables of the group `ray`. uid: of the job's user."""
    ends = {} if allocation.ends_at is None else {"cluster_ends_at": int(allocation.ends_at)}
    return {
        "slurm_job_id": allocation.job_id,
        "ray_node_runtime": "process",
        # The step of the job makes and removes it on each host.
        "cluster_state_dir": f"/tmp/argus-verl-{uid}-{allocation.job_id}",  # noqa: S108
        **ends,
    }
