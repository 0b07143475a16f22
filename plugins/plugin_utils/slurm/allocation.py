# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

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
