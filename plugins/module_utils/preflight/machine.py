# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs all checks of one machine, and defines those of its user, disk, memory, and of nodes without a container."""

from __future__ import annotations

from collections.abc import Iterator

from ..argus.common.findings import Finding
from ..cluster.engine import EngineStatus
from ..cluster.machine import Machine
from .checks import GIB, Expectation, Problem, gib_text
from .engine import container_name_problems, engine_problems, package_problems, podman_problems
from .gpu import gpu_problems
from .hca import hca_count_problems, hca_device_problems
from .host import host_problems, hostname_problems, software_problems
from .ports import ephemeral_port_problems, used_port_problems
from .shared_root import shared_root_problems
from .state_dir import state_dir_problems, token_problems

# Ray does not start if its object store leaves a smaller share of the memory (ray/_private/resource_and_label_spec.py).
MIN_REMAINING_SHARE = 0.05
MAX_LISTED_RAYS = 4  # the most other processes of Ray that a message names


def machine_findings(host: str, machine: Machine, expectation: Expectation) -> list[Finding]:
    """Run all checks that need only one machine. host: its name in the findings."""
    checks = (
        engine_problems,
        package_problems,
        _user_problems,
        gpu_problems,
        hca_count_problems,
        shared_root_problems,
        _disk_problems,
        _memory_problems,
        container_name_problems,
        token_problems,
        state_dir_problems,
        _process_node_problems,
        podman_problems,
        used_port_problems,
        ephemeral_port_problems,
        hca_device_problems,
        host_problems,
        software_problems,
        hostname_problems,
    )
    return [problem.finding(host) for check in checks for problem in check(machine, expectation)]


def _user_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    """ray_node_user has to be Ansible's user, unless Ansible is root: only root can give files to another user."""
    uid = expectation.user.partition(":")[0]
    if machine.engine.status == EngineStatus.NONE or not machine.uid or uid in ("", str(machine.uid)):
        return
    yield Problem(
        "machine.user",
        f'ray_node_user is {expectation.user}, but Ansible runs as user "{machine.user}" (uid {machine.uid}): nodes '
        "could neither read the token nor write to the shared root",
        f'remove ray_node_user, so that nodes run as "{machine.user}", or set ansible_become: true for the machines',
    )


def _disk_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    disk = machine.disk
    if disk and disk.free_bytes < expectation.disk_free_gib * GIB:
        error = f" ({disk.error})" if disk.error else ""
        yield Problem(
            "machine.disk",
            f"{disk.path} ({disk.fstype} from {disk.source}) has {gib_text(disk.free_bytes)} free{error}, "
            f"expected at least {expectation.disk_free_gib:g} GiB",
            "remove old Ray sessions below /tmp/ray, or grow the file system"
            if machine.engine.status == EngineStatus.NONE
            else f"remove unused images ({machine.engine.name} image prune), or move its data to a larger disk",
        )


def _memory_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    if machine.shm_bytes < expectation.shm_gib * GIB:
        # In too small a /dev/shm, NCCL fails with a bus error. Ray puts its object store into /tmp instead.
        yield Problem(
            "machine.shm",
            f"shared memory (/dev/shm) has {gib_text(machine.shm_bytes)}, "
            f"expected at least {expectation.shm_gib:g} GiB",
            f"mount -o remount,size={expectation.shm_gib:g}G /dev/shm, ask the platform for more shared memory, or set "
            "a smaller ray_node_shm_gib for the nodes of this machine",
        )
    max_gib = machine.memory_bytes * (1 - MIN_REMAINING_SHARE) / GIB
    if expectation.object_store_gib > max_gib:
        yield Problem(
            "machine.object_store",
            f"{gib_text(machine.memory_bytes)} of memory, and Ray's object store takes "
            f"{expectation.object_store_gib:g} GiB of it (half of ray_node_shm_gib): Ray does not start",
            f"set ray_node_shm_gib for the nodes of this machine to at most {max(1, int(2 * max_gib))}; "
            "8 is enough for a head",
        )


def _process_node_problems(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    """Problems of a host whose nodes run as processes of Ansible's user, without a container."""
    process = machine.process
    if process is None:
        return
    if machine.uid == 0:
        yield Problem(
            "process.root",
            "Ansible is root here, and a node without a container runs as Ansible's user: every job would be root",
            "connect as a user without root (ansible_user), and remove ansible_become for this host",
        )
    if not process.ray:
        yield Problem(
            "process.ray",
            "the command ray is neither beside ray_node_python nor on the system's PATH",
            "set ray_node_python to the Python in whose environment Ray and verl are installed",
        )
    if not process.address:
        yield Problem(
            "process.address",
            "no address was found at which other nodes reach this host",
            "set ray_node_address to an IP address of this host; a loopback makes gloo and NCCL fail",
        )
    if process.others:
        listed = ", ".join(process.others[:MAX_LISTED_RAYS])
        more = f" and {len(process.others) - MAX_LISTED_RAYS} more" if len(process.others) > MAX_LISTED_RAYS else ""
        yield Problem(
            "process.other_ray",
            f"another Ray runs on this host ({listed}{more}); it is left alone",
            "end it if it is not needed (its owner, with `ray stop`): it may use the same GPUs and ports",
        )
