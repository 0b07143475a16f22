# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks hca.*: the HCA ports of one machine, and its RDMA devices."""

from __future__ import annotations

from collections.abc import Iterator

from ..argus.common.findings import ERROR, WARNING
from ..cluster.devices import INFINIBAND_DIR, is_openable
from ..cluster.machine import Machine
from ..cluster.names import RDMA_ALWAYS, RDMA_AUTO, RDMA_NEVER
from .checks import Expectation, Problem, node_uid_gid


def hca_count_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    up = [port for port in machine.hcas if port.state == "up"]
    down = [port for port in machine.hcas if port.state != "up"]
    if len(up) >= expectation.hcas:
        return
    if not machine.hcas:
        yield Problem(
            "hca.count",
            f"no HCA found, expected at least {expectation.hcas} ports up",
            "load the driver (mlx5_ib), or lower the number of HCAs in the inventory",
        )
        return
    listed = ", ".join(f"{port.device} port {port.port} ({port.netdev or 'no netdev'})" for port in down)
    yield Problem(
        "hca.count",
        f"{len(up)} HCA ports up, expected at least {expectation.hcas}; down: {listed or 'none'}",
        "check cable, switch port and subnet manager of the ports that are down"
        if down
        else "check for an adapter that lspci lists and ibstat does not, or lower the number of HCAs in the inventory",
    )


def hca_device_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    """Find what keeps nodes from using RDMA. NCCL would use TCP, at a fraction of the speed."""
    hcas, files, groups = machine.hcas, machine.rdma_devices, expectation.groups
    if expectation.rdma == RDMA_NEVER or (expectation.rdma == RDMA_AUTO and not hcas):
        return
    if not files:
        is_required = expectation.rdma == RDMA_ALWAYS
        effect = "nodes would not start" if is_required else "jobs would use TCP instead of RDMA"
        yield Problem(
            "hca.devices",
            f"{len(hcas)} HCA ports, but no {INFINIBAND_DIR}/uverbs*: {effect}",
            "install rdma-core and load the driver (modprobe ib_uverbs), or set ray_node_rdma: false",
            ERROR if is_required else WARNING,
        )
        return
    user = node_uid_gid(machine, expectation)
    uid, gid = (int(number) for number in user.split(":"))
    members = [gid, *(int(group) for group in groups if group.isdigit())]
    closed = [file for file in files if not is_openable(file, uid, members)]
    # Only the image has the number of a group with a name, so then nothing is known.
    if closed and all(group.isdigit() for group in groups):
        listed = ", ".join(f"{file.path} (mode {file.mode:o}, {file.uid}:{file.gid})" for file in closed)
        yield Problem(
            "hca.devices",
            f"the nodes' user {user} cannot open {listed}: jobs would use TCP instead of RDMA",
            "install rdma-core, whose udev rule gives them mode 666, or add their group to ray_node_groups",
        )
