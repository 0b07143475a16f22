# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine: its probe, the nodes of the cluster on it, and what a run has to prepare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ..network.interfaces import Hca, Interface
from .devices import DeviceFile
from .engine import RUNNING, Container, Engine, EngineStatus, Image
from .hardware import Gpu, PathState, Xid
from .process_host import ProcessHost
from .system import Software, System


@dataclass(frozen=True)
class Machine:
    """The answer of `probe.Probe.machine`. Sizes are in bytes, or in MiB where the name says so.

    As JSON it is a return value of machine_info, and a fact that filters read again.
    """

    cluster: str
    python: str
    missing_packages: Sequence[str]
    gpus: Sequence[Gpu]
    gpus_error: str | None
    hcas: Sequence[Hca]
    mounts: Sequence[PathState]
    disk: PathState | None
    memory_bytes: int
    shm_bytes: int
    uid: int
    gid: int
    user: str
    engine: Engine
    containers: Mapping[str, Container]
    images: Mapping[str, Image | None]
    ports_in_use: Sequence[int]
    ephemeral_ports: Sequence[int] | None = None
    reserved_ports: Sequence[Sequence[int]] = ()
    rdma_devices: Sequence[DeviceFile] = ()
    # The devices of AMD's GPUs.
    rocm_gpus: Sequence[str] = ()
    rocm_devices: Sequence[DeviceFile] = ()
    amd_gpus: Sequence[Gpu] = ()
    # Of the driver, in the kernel log, and why that cannot be read.
    xids: Sequence[Xid] = ()
    kernel_log_error: str = ""
    system: System = field(default_factory=System)
    # Where nodes are processes.
    software: Software | None = None
    interfaces: Sequence[Interface] = ()
    proxies: Mapping[str, str] = field(default_factory=dict)
    # The name of the program that nodes run, argus-<hash>.zip.
    program: str = ""
    # Where nodes are processes.
    process: ProcessHost | None = None

    def to_json(self) -> dict[str, Any]:
        answer = asdict(self)
        # Ansible takes text for text of exactly that type.
        answer["engine"]["status"] = self.engine.status.value
        return answer

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Machine:
        engine = answer["engine"]
        return cls(
            **{
                **answer,
                "gpus": [Gpu.from_json(gpu) for gpu in answer["gpus"]],
                "amd_gpus": tuple(Gpu.from_json(gpu) for gpu in answer["amd_gpus"]),
                "xids": tuple(Xid(**xid) for xid in answer["xids"]),
                "system": System.from_json(answer["system"]),
                "software": Software(**answer["software"]) if answer["software"] else None,
                "hcas": [Hca(**hca) for hca in answer["hcas"]],
                "interfaces": tuple(
                    Interface(**{**row, "addresses": tuple(row["addresses"])}) for row in answer["interfaces"]
                ),
                "mounts": [PathState(**mount) for mount in answer["mounts"]],
                "disk": PathState(**answer["disk"]) if answer["disk"] else None,
                "engine": Engine(**{**engine, "status": EngineStatus(str(engine["status"]))}),
                "containers": {name: Container(**container) for name, container in answer["containers"].items()},
                "rdma_devices": tuple(DeviceFile(**file) for file in answer["rdma_devices"]),
                "rocm_gpus": tuple(answer.get("rocm_gpus", ())),
                "rocm_devices": tuple(DeviceFile(**file) for file in answer.get("rocm_devices", ())),
                "process": ProcessHost.from_json(answer["process"]) if answer.get("process") else None,
                "images": {name: Image(**image) if image else None for name, image in answer["images"].items()},
            }
        )

    def runs(self, node: str) -> bool:
        if self.process is not None:
            return self.process.node.state == RUNNING and node in self.nodes
        return node in self.nodes and self.containers[node].state == RUNNING

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes of the cluster that are here, in any state."""
        if self.process is None:
            return [name for name, container in self.containers.items() if container.cluster == self.cluster]
        process_nodes = [PurePosixPath(self.process.directory).name] if self.process.node.state else []
        return [*process_nodes, *self.process.neighbours]


@dataclass(frozen=True)
class ProbedMachine:
    """A machine as this run probed it.

    name: for messages. nodes: those that the inventory places on it. probe: None if it did not answer.
    problem: why nothing can be started on it, or "". derived_env: the variables of NCCL and gloo that follow from all
    machines.
    """

    name: str
    nodes: Sequence[str]
    probe: Machine | None = None
    problem: str = ""
    derived_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedMachine:
    """A machine in the plan of a cluster.

    answers: whether it was probed. user: of its nodes, as uid:gid; empty if nothing has to be prepared for them.
    present, running: the nodes of the cluster that are there, also those that left the inventory.
    surplus: of these, names of containers, or directories of processes. others: containers with names of the
    inventory's nodes that belong to another cluster, with its name. engine: "" where nodes are processes.
    sessions: the directory of Ray's sessions, where nodes are processes.
    """

    name: str
    nodes: Sequence[str]
    problem: str = ""
    answers: bool = False
    user: str = ""
    present: Sequence[str] = ()
    running: Sequence[str] = ()
    surplus: Sequence[str] = ()
    others: Mapping[str, str | None] = field(default_factory=dict)
    engine: str = ""
    sessions: str = ""

    @classmethod
    def of(cls, machine: ProbedMachine, user: str, sessions: str, inventory_nodes: Sequence[str]) -> PlannedMachine:
        """The plan's view of a probed machine; user and sessions as above."""
        probe = machine.probe
        if probe is None:
            return cls(machine.name, list(machine.nodes), machine.problem)
        present, process = probe.nodes, probe.process
        surplus = [node for node in present if node not in inventory_nodes]
        above = PurePosixPath(process.directory).parent if process else None
        return cls(
            machine.name,
            list(machine.nodes),
            machine.problem,
            answers=True,
            user=user,
            present=present,
            running=[node for node in present if probe.runs(node)],
            surplus=[str(above / node) for node in surplus] if above else surplus,
            others={
                node: container.cluster
                for node, container in probe.containers.items()
                if container.cluster != probe.cluster and node in inventory_nodes
            },
            engine="" if process else probe.engine.name,
            sessions=sessions,
        )
