# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine must have, compared with what it was found to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings import ERROR, WARNING, Finding
from . import engine as engines
from . import machine as probes

GIB = 2**30
Machine = Mapping[str, Any]


@dataclass(frozen=True)
class Expectation:
    """What is expected of one machine; a zero, an empty text or an empty list expects nothing.

    gpus: at least so many; None takes what there is.
    hcas: at least so many HCA ports that are up.
    shared_root: its path on the machine.
    shared_root_fstypes: the file-system types that it may have, as the kernel names them ("nfs4", "lustre").
    disk_free_gib: where the engine keeps images and containers.
    """

    gpus: int | None = None
    hcas: int = 0
    shared_root: str = ""
    shared_root_fstypes: Sequence[str] = ()
    memory_gib_per_gpu: float = 0.0
    disk_free_gib: float = 0.0
    shared_root_free_gib: float = 0.0
    shm_gib: float = 0.0


def machine_findings(host: str, machine: Machine, expectation: Expectation) -> list[Finding]:
    """All that keeps the machine, as ``Probe.machine`` tells of it, from what is expected of it."""
    findings: list[Finding] = []
    for check in (_engine, _packages, _gpus, _hcas, _shared_root, _space, _memory, _ports, _names):
        findings += [Finding(host, what, todo, severity) for what, todo, severity in check(machine, expectation)]
    return findings


# What is wrong, what to do about it, how bad it is.
Remark = tuple[str, str, str]


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"


def _engine(machine: Machine, _expectation: Expectation) -> Iterator[Remark]:
    engine = machine["engine"]
    todo = {
        engines.MISSING: f'install it, or name the engine that this machine has in place of "{engine["name"]}"',
        engines.DENIED: f'let the user "{machine["user"]}" use it (group "docker", or become), or use rootless podman',
        engines.NO_ANSWER: "start its daemon (systemctl enable --now docker) and look at its log",
        engines.FAILED: "run the command on the machine and mend what it names",
    }.get(engine["status"])
    if todo:
        yield f"container engine not usable, expected one that answers: {engine['error']}", todo, ERROR


def _packages(machine: Machine, _expectation: Expectation) -> Iterator[Remark]:
    if machine["engine"]["status"] != engines.NONE:
        for name in machine["missing_packages"]:
            yield (
                f"{machine['python']} has no package {name}, with which containers are started",
                f"install it there (python3-{name}, or pip install {name}), or name another ansible_python_interpreter",
                ERROR,
            )


def _gpus(machine: Machine, expectation: Expectation) -> Iterator[Remark]:
    found, expected = len(machine["gpus"]), expectation.gpus
    wanted = "" if expected is None else f", expected {expected}"
    if machine["gpus_error"]:
        # Without GPUs to use, as on a machine for the head, a broken driver is only worth knowing.
        yield (
            f"nvidia-smi fails and shows {found} GPUs{wanted}: {machine['gpus_error']}",
            "after a driver update reload the nvidia modules or reboot; a GPU lost from the bus shows in dmesg as Xid",
            WARNING if expected == 0 else ERROR,
        )
    elif expected is not None and found < expected:
        yield (
            f"{found} GPUs found, expected at least {expected}",
            "install the NVIDIA driver (nvidia-smi is not on PATH, or no GPU is in this machine)"
            if not found
            else "look for GPUs lost from the bus (dmesg, lspci), or lower the number of GPUs in the inventory",
            ERROR,
        )
    models = Counter(gpu["name"] for gpu in machine["gpus"])
    if len(models) > 1:
        listed = ", ".join(f"{count} x {name}" for name, count in sorted(models.items()))
        yield (
            f"GPUs of different models: {listed}, expected one model",
            "a job runs at the pace and in the memory of the smallest GPU: leave the others out",
            WARNING,
        )
    engine = machine["engine"]
    if found and expected != 0 and engine["status"] == engines.OK and not engine["nvidia"]:
        yield (
            f"{found} GPUs found, but {engine['name']} {engine['version']} cannot hand them to containers: "
            'neither a runtime "nvidia" nor a CDI specification for nvidia.com/gpu is known',
            "install nvidia-container-toolkit, then: nvidia-ctk runtime configure --runtime=docker and restart docker"
            if engine["name"] == "docker"
            else "install nvidia-container-toolkit, then: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            ERROR,
        )


def _hcas(machine: Machine, expectation: Expectation) -> Iterator[Remark]:
    up = [port for port in machine["hcas"] if port["state"] == "up"]
    down = [port for port in machine["hcas"] if port["state"] != "up"]
    if len(up) >= expectation.hcas:
        return
    if not machine["hcas"]:
        yield (
            f"no HCA found, expected at least {expectation.hcas} ports up",
            "load the driver (mlx5_ib), or lower the number of HCAs in the inventory",
            ERROR,
        )
        return
    listed = ", ".join(f"{port['device']} port {port['port']} ({port['netdev'] or 'no netdev'})" for port in down)
    yield (
        f"{len(up)} HCA ports up, expected at least {expectation.hcas} (told by {machine['hca_source']}); "
        f"down: {listed or 'none'}",
        "check cable, switch port and subnet manager of those that are down"
        if down
        else "look for an adapter that lspci shows and ibstat does not, or lower the number of HCAs in the inventory",
        ERROR,
    )


def _shared_root(machine: Machine, expectation: Expectation) -> Iterator[Remark]:
    path = expectation.shared_root
    state = next((mount for mount in machine["mounts"] if mount["path"] == path), None)
    if not path or state is None:
        return
    place = f"{state['fstype']} from {state['source']}, mounted at {state['mount_point']}"
    types = list(expectation.shared_root_fstypes)
    expected = f" of type {' or '.join(types)}" if types else ""
    if state["error"]:
        yield (
            f"shared root {path} cannot be read: {state['error']} ({place}), expected a directory{expected}",
            "bring its file server back, or unmount it (umount -l) and mount it again",
            ERROR,
        )
        return
    if not state["exists"]:
        yield (
            f"shared root {path} does not exist (the path leads to {place}), expected a directory{expected}",
            f"mount the shared file system at {path}, or create the directory where it is mounted already",
            ERROR,
        )
        return
    if types and state["fstype"] not in types:
        yield (
            f"shared root {path} is {place}, expected{expected}",
            f'mount the shared file system at {path}, or add "{state["fstype"]}" to the types that it may have',
            ERROR,
        )
    if not state["writable"]:
        read_only = "ro" in state["options"]
        yield (
            f"shared root {path} ({place}) is {'mounted read-only' if read_only else 'not writable'}, "
            f'expected writable for user "{machine["user"]}" (uid {machine["uid"]})',
            "mount it with the option rw"
            if read_only
            else "change owner or mode of the directory; on NFS look for root_squash in the server's export",
            ERROR,
        )
    if state["free_bytes"] < expectation.shared_root_free_gib * GIB:
        yield (
            f"shared root {path} ({place}) has {_gib(state['free_bytes'])} free, "
            f"expected at least {expectation.shared_root_free_gib:g} GiB",
            f"remove old checkpoints and outputs below {path}, or grow the file system",
            ERROR,
        )


def _space(machine: Machine, expectation: Expectation) -> Iterator[Remark]:
    disk = machine["disk"]
    if disk and disk["free_bytes"] < expectation.disk_free_gib * GIB:
        engine = machine["engine"]["name"]
        trouble = f" ({disk['error']})" if disk["error"] else ""
        yield (
            f"{disk['path']} ({disk['fstype']} from {disk['source']}) has {_gib(disk['free_bytes'])} free{trouble}, "
            f"expected at least {expectation.disk_free_gib:g} GiB",
            "remove old Ray sessions below /tmp/ray, or grow the file system"
            if engine == engines.NONE
            else f"remove images that nobody uses ({engine} image prune), or move its data to a larger disk",
            ERROR,
        )
    if machine["shm_bytes"] < expectation.shm_gib * GIB:
        # Ray puts its object store there and falls back to /tmp; NCCL dies of a bus error.
        yield (
            f"shared memory (/dev/shm) has {_gib(machine['shm_bytes'])}, expected at least {expectation.shm_gib:g} GiB",
            f"mount -o remount,size={expectation.shm_gib:g}G /dev/shm, or ask the platform for more shared memory",
            ERROR,
        )


def _memory(machine: Machine, expectation: Expectation) -> Iterator[Remark]:
    gpus = len(machine["gpus"]) if expectation.gpus is None else expectation.gpus
    if machine["memory_bytes"] < gpus * expectation.memory_gib_per_gpu * GIB:
        # 80 GB of memory a GPU: github.com/verl-project/verl/issues/429. Smaller models do with less.
        yield (
            f"{_gib(machine['memory_bytes'])} of memory for {gpus} GPUs, expected at least "
            f"{expectation.memory_gib_per_gpu:g} GiB a GPU ({gpus * expectation.memory_gib_per_gpu:g} GiB in all)",
            "use fewer GPUs of this machine, or train without offloading to the CPU; see verl issue 429",
            WARNING,
        )


def _ports(machine: Machine, _expectation: Expectation) -> Iterator[Remark]:
    for port in machine["ports_in_use"]:
        if not _held_by_cluster(machine, port):
            yield (
                f"port {port} on 127.0.0.1 is in use, expected free for the dashboard and the Jobs API",
                f"end the program that listens there (ss -ltnp 'sport = :{port}'), "
                "or choose another port with cluster_dashboard_port",
                ERROR,
            )


def _held_by_cluster(machine: Machine, port: int) -> bool:
    """A head that runs uses its port rightly; with the host's network its ports are not listed."""
    return any(
        (port in container["host_ports"] or container["host_network"])
        and _cluster(container) == machine["cluster"]
        and container["state"] in ("running", "restarting", "paused")
        for container in machine["containers"].values()
    )


def _names(machine: Machine, _expectation: Expectation) -> Iterator[Remark]:
    for name, container in machine["containers"].items():
        owner = _cluster(container)
        if owner == machine["cluster"]:
            continue
        held = f'cluster "{owner}"' if owner else f"somebody else, without the label {probes.CLUSTER_LABEL}"
        yield (
            f'the name "{name}" is held by a container of {held} ({container["state"]}, id {container["id"][:12]}), '
            f'expected free or of cluster "{machine["cluster"]}"',
            "ask its owner to remove or rename it, or give this cluster another name",
            ERROR,
        )


def _cluster(container: Mapping[str, Any]) -> str | None:
    owner = container["labels"].get(probes.CLUSTER_LABEL)
    return None if owner is None else str(owner)
