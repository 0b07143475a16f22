# SPDX-License-Identifier: GPL-3.0-or-later
"""A batch job of Slurm with the hosts that were allocated to it, parsed from the output of Slurm's commands."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .scontrol import (
    cpu_count,
    expand_nodelist,
    field_value,
    fields_of,
    gpu_count,
    number_value,
    records_of,
    resources_by_node,
)

RUNNING, PENDING = "RUNNING", "PENDING"
# The states of nodes that the administrator wants back, or that Slurm has lost.
UNAVAILABLE_STATES = ("DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "DOWN", "NOT_RESPONDING")
STATE_WORD = re.compile(r"[A-Z_]+")


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
