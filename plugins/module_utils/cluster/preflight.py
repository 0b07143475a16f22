# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight: compare a machine, as it was probed, with what the inventory expects of it."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from ..findings import ERROR, WARNING, Finding
from ..privileges import UNPRIVILEGED
from ..shared_root import JOBS
from .engine import CLUSTER_LABEL, UP, EngineStatus
from .machine import Machine
from .mounts import PathState

GIB = 2**30


@dataclass(frozen=True)
class Expectation:
    """What one machine must have; a zero, an empty text or an empty list expects nothing.

    gpus: the minimum; None accepts any number.
    hcas: the minimum of HCA ports that are up.
    shared_root: its path on the machine.
    shared_root_fstypes: the file-system types that it may have, as the kernel names them ("nfs4", "lustre").
    disk_free_gib: where the engine keeps images and containers.
    user: the nodes' user, as uid:gid; empty for the default.
    token_file: its path on the machine.
    """

    gpus: int | None = None
    hcas: int = 0
    shared_root: str = ""
    shared_root_fstypes: Sequence[str] = ()
    memory_gib_per_gpu: float = 0.0
    disk_free_gib: float = 0.0
    shared_root_free_gib: float = 0.0
    shm_gib: float = 0.0
    user: str = ""
    token_file: str = ""


class Problem(NamedTuple):
    """A finding without its place, which is the same for all of a machine."""

    what: str
    todo: str
    severity: str = ERROR


def machine_findings(host: str, machine: Machine, expectation: Expectation) -> list[Finding]:
    """Return every difference between the machine and what is expected of it."""
    findings: list[Finding] = []
    for check in (
        _engine,
        _packages,
        _gpus,
        _gpu_access,
        _hcas,
        _shared_root,
        _space,
        _memory,
        _ports,
        _names,
        _token,
    ):
        findings += [
            Finding(host, problem.what, problem.todo, problem.severity) for problem in check(machine, expectation)
        ]
    return findings


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"


def _engine(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    engine = machine.engine
    todo = {
        EngineStatus.MISSING: f'install "{engine.name}" on this machine',
        EngineStatus.DENIED: f'add the user "{machine.user}" to the group "docker", or set ansible_become: true',
        EngineStatus.NO_ANSWER: "start its daemon (systemctl enable --now docker) and check its log",
        EngineStatus.FAILED: "run the command on the machine and fix the error that it prints",
    }.get(engine.status)
    if todo:
        yield Problem(f"container engine not usable, expected one that answers: {engine.error}", todo)


def _packages(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    if machine.engine.status != EngineStatus.NONE:
        for name in machine.missing_packages:
            yield Problem(
                f"{machine.python} has no package {name}, which is needed to start containers",
                f"install it there (python3-{name}, or pip install {name}), or set another ansible_python_interpreter",
            )


def _gpus(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    found, expected = len(machine.gpus), expectation.gpus
    wanted = "" if expected is None else f", expected {expected}"
    if machine.gpus_error:
        # A machine whose GPUs are not used, such as the head's, works with a broken driver.
        yield Problem(
            f"nvidia-smi fails and shows {found} GPUs{wanted}: {machine.gpus_error}",
            "after a driver update reload the nvidia modules or reboot; a GPU lost from the bus shows in dmesg as Xid",
            WARNING if expected == 0 else ERROR,
        )
    elif expected is not None and found < expected:
        yield Problem(
            f"{found} GPUs found, expected at least {expected}",
            "check for GPUs lost from the bus (dmesg, lspci), or lower the number of GPUs in the inventory"
            if found
            else "install the NVIDIA driver (nvidia-smi is not on PATH, or this machine has no GPU)",
        )
    models = Counter(gpu.name for gpu in machine.gpus)
    if len(models) > 1:
        listed = ", ".join(f"{count} x {name}" for name, count in sorted(models.items()))
        yield Problem(
            f"GPUs of different models: {listed}, expected one model",
            "exclude the smaller GPUs: a job is limited by the speed and memory of the smallest one",
            WARNING,
        )


def _gpu_access(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    engine, found = machine.engine, len(machine.gpus)
    if found and expectation.gpus != 0 and engine.status == EngineStatus.OK and not engine.nvidia:
        yield Problem(
            f"{found} GPUs found, but {engine.name} {engine.version} cannot give them to containers: "
            'it has neither a runtime "nvidia" nor a CDI specification for nvidia.com/gpu',
            "install nvidia-container-toolkit, then: nvidia-ctk runtime configure --runtime=docker and restart docker"
            if engine.name == "docker"
            else "install nvidia-container-toolkit, then: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        )


def _hcas(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    up = [port for port in machine.hcas if port.state == "up"]
    down = [port for port in machine.hcas if port.state != "up"]
    if len(up) >= expectation.hcas:
        return
    if not machine.hcas:
        yield Problem(
            f"no HCA found, expected at least {expectation.hcas} ports up",
            "load the driver (mlx5_ib), or lower the number of HCAs in the inventory",
        )
        return
    listed = ", ".join(f"{port.device} port {port.port} ({port.netdev or 'no netdev'})" for port in down)
    yield Problem(
        f"{len(up)} HCA ports up, expected at least {expectation.hcas} (source: {machine.hca_source}); "
        f"down: {listed or 'none'}",
        "check cable, switch port and subnet manager of the ports that are down"
        if down
        else "check for an adapter that lspci lists and ibstat does not, or lower the number of HCAs in the inventory",
    )


def _shared_root(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    path = expectation.shared_root
    state = next((mount for mount in machine.mounts if mount.path == path), None)
    if not path or state is None:
        return
    location = f"{state.fstype} from {state.source}, mounted at {state.mount_point}"
    types = list(expectation.shared_root_fstypes)
    expected = f" of type {' or '.join(types)}" if types else ""
    if state.error:
        yield Problem(
            f"shared root {path} cannot be read: {state.error} ({location}), expected a directory{expected}",
            "bring its file server back, or unmount it (umount -l) and mount it again",
        )
        return
    if not state.exists:
        yield Problem(
            f"shared root {path} does not exist (its nearest parent is on {location}), expected a directory{expected}",
            f"mount the shared file system at {path}, or create the directory where it is mounted already",
        )
        return
    if types and state.fstype not in types:
        yield Problem(
            f"shared root {path} is {location}, expected{expected}",
            f'mount the shared file system at {path}, or add "{state.fstype}" to preflight_shared_root_fstypes',
        )
    yield from _shared_root_use(machine, expectation, state, location)
    yield from _shared_root_owner(machine, expectation, state)


def _shared_root_use(machine: Machine, expectation: Expectation, state: PathState, location: str) -> Iterator[Problem]:
    if not state.writable:
        read_only = "ro" in state.options
        yield Problem(
            f"shared root {state.path} ({location}) is {'mounted read-only' if read_only else 'not writable'}, "
            f'expected writable for user "{machine.user}" (uid {machine.uid})',
            "mount it with the option rw"
            if read_only
            else "change owner or mode of the directory; on NFS check for root_squash in the server's export",
        )
    if state.free_bytes < expectation.shared_root_free_gib * GIB:
        yield Problem(
            f"shared root {state.path} ({location}) has {_gib(state.free_bytes)} free, "
            f"expected at least {expectation.shared_root_free_gib:g} GiB",
            f"remove old checkpoints and outputs below {state.path}, or grow the file system",
        )


def _shared_root_owner(machine: Machine, expectation: Expectation, state: PathState) -> Iterator[Problem]:
    if state.mode is not None and state.mode & stat.S_IWOTH and not state.mode & stat.S_ISVTX:
        yield Problem(
            f"every user of the machine can replace the directories of the shared root {state.path} "
            f"(mode {state.mode:o}), expected a directory that only its owner or group can write to",
            f"chmod o-w {state.path}, or set the sticky bit (chmod +t)",
            WARNING,
        )
    # Otherwise they belong to Ansible's own user.
    user = expectation.user or f"{UNPRIVILEGED}:{UNPRIVILEGED}"
    owner = state.archives_owner
    if machine.uid == 0 and owner and owner.split(":")[0] != user.split(":")[0]:
        other = f'set ray_node_user: "{owner}" for the nodes, or ' if not owner.startswith("0:") else ""
        yield Problem(
            f"the job archives in {state.path}/{JOBS} belong to {owner}, expected the nodes' user {user}",
            f"{other}change their owner: chown -hR {user} {state.path}/{JOBS}",
        )


def _token(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    path = PurePosixPath(expectation.token_file)
    limits = {str(path): 0o400, str(path.parent): 0o711} if expectation.token_file else {}
    for state in machine.mounts:
        limit = limits.get(state.path)
        # The owner's own rights are no problem.
        if state.mode is not None and limit is not None and state.mode & 0o077 & ~limit:
            yield Problem(
                f"{state.path} has mode {state.mode:o}, expected {limit:o}: other users of the machine could find or "
                "read the cluster's token",
                f"chmod {limit:o} {state.path}, and rotate the token if you do not trust them "
                "(cluster_up.yml -e rotate_token=true)",
                WARNING,
            )


def _space(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    disk = machine.disk
    if disk and disk.free_bytes < expectation.disk_free_gib * GIB:
        error = f" ({disk.error})" if disk.error else ""
        yield Problem(
            f"{disk.path} ({disk.fstype} from {disk.source}) has {_gib(disk.free_bytes)} free{error}, "
            f"expected at least {expectation.disk_free_gib:g} GiB",
            "remove old Ray sessions below /tmp/ray, or grow the file system"
            if machine.engine.status == EngineStatus.NONE
            else f"remove unused images ({machine.engine.name} image prune), or move its data to a larger disk",
        )
    if machine.shm_bytes < expectation.shm_gib * GIB:
        # Ray puts its object store there and falls back to /tmp; NCCL fails with a bus error.
        yield Problem(
            f"shared memory (/dev/shm) has {_gib(machine.shm_bytes)}, expected at least {expectation.shm_gib:g} GiB",
            f"mount -o remount,size={expectation.shm_gib:g}G /dev/shm, or ask the platform for more shared memory",
        )


def _memory(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    gpus = len(machine.gpus) if expectation.gpus is None else expectation.gpus
    if machine.memory_bytes < gpus * expectation.memory_gib_per_gpu * GIB:
        # 80 GB of memory for each GPU: github.com/verl-project/verl/issues/429. Smaller models need less.
        yield Problem(
            f"{_gib(machine.memory_bytes)} of memory for {gpus} GPUs, expected at least "
            f"{expectation.memory_gib_per_gpu:g} GiB per GPU ({gpus * expectation.memory_gib_per_gpu:g} GiB in total)",
            "use fewer GPUs of this machine, or train without offloading to the CPU; see verl issue 429",
            WARNING,
        )


def _ports(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    for port in machine.ports_in_use:
        if not _held_by_cluster(machine, port):
            yield Problem(
                f"port {port} on 127.0.0.1 is in use, expected free for the dashboard and the Jobs API",
                f"end the program that listens there (ss -ltnp 'sport = :{port}'), "
                "or choose another port with cluster_dashboard_port",
            )


def _held_by_cluster(machine: Machine, port: int) -> bool:
    """Whether the cluster's own head holds the port; with the host's network its ports are not listed."""
    return any(
        (port in container.host_ports or container.host_network)
        and container.cluster == machine.cluster
        and container.state in UP
        for container in machine.containers.values()
    )


def _names(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    for name, container in machine.containers.items():
        if container.cluster == machine.cluster:
            continue
        owner = f'cluster "{container.cluster}"' if container.cluster else f"no cluster (no label {CLUSTER_LABEL})"
        yield Problem(
            f'the name "{name}" is taken by a container of {owner} ({container.state}, id {container.id[:12]}), '
            f'expected free or of cluster "{machine.cluster}"',
            "ask its owner to remove or rename it, or rename the node in the inventory",
        )
