# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine in three views: its state, as this run probed it, and in the plan of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ..network.interfaces import Hca, Interface
from .devices import DeviceFile
from .engine import RUNNING, Container, Engine, EngineStatus, Image
from .gpus import Gpu, Xid
from .paths import PathState
from .process_host import ProcessHost
from .system import Software, System


@dataclass(frozen=True)
class Machine:
    """The state of a machine, as `probe.Probe.machine` returns it.

    As JSON, it is a return value of the module machine_info, and a fact that the controller reads again.
    """

    cluster: str
    # The Python that runs Ansible's modules, and the packages that community.docker lacks there.
    python: str
    missing_packages: Sequence[str]
    # NVIDIA's GPUs, and the error of nvidia-smi.
    gpus: Sequence[Gpu]
    gpus_error: str | None
    hcas: Sequence[Hca]
    mounts: Sequence[PathState]
    # Where the engine keeps images and containers; without an engine, Ray's /tmp. None if the engine does not answer.
    disk: PathState | None
    memory_bytes: int
    shm_bytes: int
    # Ansible's user.
    uid: int
    gid: int
    user: str
    engine: Engine
    # By name: the containers of the cluster, and those with a name that the cluster uses.
    containers: Mapping[str, Container]
    # By reference: the images that were asked for; None for one that is missing.
    images: Mapping[str, Image | None]
    ports_in_use: Sequence[int]
    # The first and the last port that the kernel gives to outgoing connections, and the ranges that it leaves out.
    ephemeral_ports: Sequence[int] | None = None
    reserved_ports: Sequence[Sequence[int]] = ()
    rdma_devices: Sequence[DeviceFile] = ()
    # AMD's GPUs for jobs: /dev/dri/renderD<n> of each, and the device files that a node needs for them.
    rocm_gpus: Sequence[str] = ()
    rocm_devices: Sequence[DeviceFile] = ()
    # All of AMD's GPUs, with their state.
    amd_gpus: Sequence[Gpu] = ()
    # Errors of NVIDIA's driver in the kernel log, and why the log cannot be read.
    xids: Sequence[Xid] = ()
    kernel_log_error: str = ""
    system: System = field(default_factory=System)
    software: Software | None = None
    interfaces: Sequence[Interface] = ()
    proxies: Mapping[str, str] = field(default_factory=dict)
    # The name of the program that nodes run, argus-<hash>.zip; empty before the first cluster_up.
    program: str = ""
    # Set if nodes are processes.
    process: ProcessHost | None = None

    def to_json(self) -> dict[str, Any]:
        answer = asdict(self)
        # Ansible accepts a str as text, but not a subclass of str.
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
        """The names of the cluster's nodes on this machine, in any state."""
        if self.process is None:
            return [name for name, container in self.containers.items() if container.cluster == self.cluster]
        process_nodes = [PurePosixPath(self.process.directory).name] if self.process.node.state else []
        return [*process_nodes, *self.process.neighbours]


@dataclass(frozen=True)
class ProbedMachine:
    """A machine as this run probed it."""

    name: str
    # The nodes that the inventory places on it.
    nodes: Sequence[str]
    # None if it did not answer.
    probe: Machine | None = None
    # Why no node can start on it, or "".
    problem: str = ""
    # The variables of NCCL and gloo that follow from all machines.
    derived_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedMachine:
    """A machine in the plan of a cluster. The first three fields are those of ProbedMachine."""

    name: str
    nodes: Sequence[str]
    problem: str = ""
    # Whether it answered the probe. If not, the fields below are empty.
    answers: bool = False
    # The user of its nodes, as uid:gid; empty if nothing has to be prepared for them.
    user: str = ""
    # The nodes of the cluster that exist on it, and those that run. They may have left the inventory.
    present: Sequence[str] = ()
    running: Sequence[str] = ()
    # The nodes among `present` that have left the inventory: names of containers, or directories of processes.
    surplus: Sequence[str] = ()
    # Containers of another cluster that have the name of a node of the inventory, with the name of that cluster.
    others: Mapping[str, str | None] = field(default_factory=dict)
    # The engine's command; empty if nodes are processes.
    engine: str = ""
    # The directory of Ray's sessions; empty if nodes are containers.
    sessions: str = ""

    @classmethod
    def of(cls, machine: ProbedMachine, user: str, sessions: str, inventory_nodes: Sequence[str]) -> PlannedMachine:
        """Plan a probed machine."""
        probe = machine.probe
        if probe is None:
            return cls(machine.name, list(machine.nodes), machine.problem)
        present, process = probe.nodes, probe.process
        surplus = [node for node in present if node not in inventory_nodes]
        nodes_dir = PurePosixPath(process.directory).parent if process else None
        return cls(
            machine.name,
            list(machine.nodes),
            machine.problem,
            answers=True,
            user=user,
            present=present,
            running=[node for node in present if probe.runs(node)],
            surplus=[str(nodes_dir / node) for node in surplus] if nodes_dir else surplus,
            others={
                node: container.cluster
                for node, container in probe.containers.items()
                if container.cluster != probe.cluster and node in inventory_nodes
            },
            engine="" if process else probe.engine.name,
            sessions=sessions,
        )
