# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of preflight: expectations, checks and problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..argus.common.findings import NOTE, Finding
from ..cluster.devices import NEVER
from ..cluster.machine import Machine
from ..cluster.ports import PortRange
from .table import CHECKS

# Variables are text if they come from the command line.
CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "int": int,
    "int | None": int,
    "float": float,
    "Sequence[str]": lambda value: value.split(",") if isinstance(value, str) else [str(each) for each in value],
    "Sequence[PortRange]": lambda value: tuple(PortRange(**each) for each in value),
}


@dataclass(frozen=True)
class Expectation:
    """What one machine must have; a zero, an empty text or an empty list expects nothing.

    gpus: the minimum; None accepts any number.
    gpu_model: words in the name of each GPU. gpu_memory_gib: of each GPU, nearly at least.
    hcas: the minimum of HCA ports that are up.
    shared_root: its path on the machine.
    shared_root_fstypes: the file-system types that it may have, as the kernel names them ("nfs4", "lustre").
    disk_free_gib: where the engine keeps images and containers.
    shm_gib: of /dev/shm, where nodes use that of the machine. object_store_gib: of memory, for the largest node.
    user: the nodes' user, as uid:gid; empty for the default.
    token_file: its path on the machine.
    ports: what the nodes of the machine listen on.
    rdma: "auto" or "true" if nodes of the machine may get the devices of RDMA, or "false".
    groups: the nodes' further groups.
    address: at which the nodes of other machines reach this one; empty if nodes do not use the machine's network.
    trains: whether the machine has workers.
    network_env: what the inventory sets of the variables that are derived otherwise.
    python: that of a node without a container; empty where nodes are containers.
    head_storage: where Ray's head has its tables, if that is on the machine: cluster_head_storage.
    """

    gpus: int | None = None
    gpu_model: str = ""
    gpu_memory_gib: float = 0.0
    hcas: int = 0
    shared_root: str = ""
    shared_root_fstypes: Sequence[str] = ()
    memory_gib_per_gpu: float = 0.0
    disk_free_gib: float = 0.0
    shared_root_free_gib: float = 0.0
    shm_gib: float = 0.0
    object_store_gib: float = 0.0
    user: str = ""
    token_file: str = ""
    ports: Sequence[PortRange] = ()
    rdma: str = NEVER
    groups: Sequence[str] = ()
    address: str = ""
    trains: bool = True
    network_env: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    head_storage: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Expectation:
        types = {each.name: str(each.type) for each in fields(cls)}
        expected = cls(
            **{
                name: CONVERSIONS.get(types.get(name, ""), lambda same: same)(value)
                for name, value in values.items()
                if value not in (None, "")
            }
        )
        # Of Ansible's user on the machine, who reads this first.
        token = expected.token_file
        return replace(expected, token_file=str(Path(token).expanduser())) if token else expected


class Problem(NamedTuple):
    """A finding without its place, which is the same for all of a machine. Empty texts are those of the check."""

    key: str
    what: str
    todo: str = ""
    severity: str = ""

    def finding(self, where: str) -> Finding:
        check = CHECKS[self.key]
        return Finding(where, self.what, self.todo or check.todo, self.severity or check.severity, key=self.key)


def accepted(finding: Finding, accept: Sequence[str]) -> Finding:
    """A finding that the operator knows of is a note. accept: keys, as key or key@host."""
    if finding.severity != NOTE and finding.key and {finding.key, f"{finding.key}@{finding.where}"} & set(accept):
        return replace(finding, severity=NOTE, what=f"accepted: {finding.what}")
    return finding


@dataclass(frozen=True)
class Context:
    """A machine as it was probed, and what is expected of it."""

    host: str
    machine: Machine
    expected: Expectation


class Compared(NamedTuple):
    """A value that has to be the same on all machines; an empty one is not known."""

    key: str
    name: str
    value: str


def listed_counts(names: Iterable[str]) -> str:
    """Such as "1 x A, 7 x B"."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))


def differences(key: str, name: str, values: Mapping[str, str]) -> Iterable[Finding]:
    """A finding for each host whose value is not that of most hosts. A host without a value is left out."""
    known = {host: value for host, value in values.items() if value}
    # Of several values that are equally frequent, the first.
    ((usual, same),) = Counter(known.values()).most_common(1) or [("", 0)]
    for host, value in known.items():
        if value != usual:
            yield Problem(key, f"{name} is {value}, on {same} of {len(known)} machines it is {usual}").finding(host)
