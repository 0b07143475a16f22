# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory expects of one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..cluster.devices import RDMA_NEVER
from ..cluster.machine import Machine
from ..cluster.ports import PortRange
from ..privileges import UNPRIVILEGED

GIB = 2**30
# Conversions by the type of the field. A variable is text if it comes from the command line.
CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "int": int,
    "int | None": int,
    "float": float,
    "Sequence[str]": lambda value: value.split(",") if isinstance(value, str) else [str(item) for item in value],
    "Sequence[PortRange]": lambda value: tuple(PortRange(**item) for item in value),
}


@dataclass(frozen=True)
class Expectation:
    """What one machine must have. A zero, an empty text or an empty list expects nothing."""

    # The least number of GPUs; None accepts any number, and 0 means that the machine's GPUs are not used.
    gpus: int | None = None
    # Words in the name of each GPU.
    gpu_model: str = ""
    # The least number of HCA ports that are up.
    hcas: int = 0
    # The path of the shared root on the machine.
    shared_root: str = ""
    # The file-system types that the shared root may have, as the kernel names them: "nfs4", "lustre".
    shared_root_fstypes: Sequence[str] = ()
    # The least free space where the engine keeps images, and on the shared root.
    disk_free_gib: float = 0.0
    shared_root_free_gib: float = 0.0
    # The least size of /dev/shm, if nodes use that of the machine.
    shm_gib: float = 0.0
    # How much memory the largest node gives to Ray's object store.
    object_store_gib: float = 0.0
    # The nodes' user as uid:gid; empty for the default.
    user: str = ""
    # The path of the cluster's token on the machine.
    token_file: str = ""
    # What the nodes of the machine listen on.
    ports: Sequence[PortRange] = ()
    # RDMA_AUTO or RDMA_ALWAYS if nodes of the machine may get its RDMA devices.
    rdma: str = RDMA_NEVER
    # Further groups of the nodes' user, as numbers or as names in the image.
    groups: Sequence[str] = ()
    # The address at which other nodes reach this machine; empty if nodes do not use the machine's network.
    address: str = ""
    # Whether the machine has workers.
    trains: bool = True
    # The variables of NCCL and gloo that the inventory sets, so that they are not derived.
    network_env: Mapping[str, str] = field(default_factory=dict)
    # The Python of a node without a container; empty where nodes are containers.
    python: str = ""
    # cluster_head_storage, if Ray's head is on the machine.
    head_storage: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Expectation:
        """Parse the option `expect` of machine_info. Fields that are None or empty keep their defaults."""
        types = {attribute.name: str(attribute.type) for attribute in fields(cls)}
        expected = cls(
            **{
                name: CONVERSIONS.get(types.get(name, ""), lambda same: same)(value)
                for name, value in values.items()
                if value not in (None, "")
            }
        )
        # "~" is the home of Ansible's user on the machine, where this runs first.
        token = expected.token_file
        return replace(expected, token_file=str(Path(token).expanduser())) if token else expected


@dataclass(frozen=True)
class Context:
    """A machine as it was probed, and what is expected of it."""

    host: str
    machine: Machine
    expected: Expectation


def node_uid_gid(machine: Machine, expectation: Expectation) -> str:
    """Return the user that nodes run as on a machine, as "uid:gid"."""
    ansible_user = f"{machine.uid}:{machine.gid}"
    if machine.process:
        # If that is root, the check process.root reports it.
        return ansible_user
    return expectation.user or (ansible_user if machine.uid else f"{UNPRIVILEGED}:{UNPRIVILEGED}")


def gib_text(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB"
