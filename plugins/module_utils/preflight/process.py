# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host of a node without a container, compared with what the node needs of it."""

from __future__ import annotations

from collections.abc import Iterator

from ..argus.common.findings import ERROR, WARNING
from ..cluster.machine import Machine
from .checks import Check, Problem
from .expectation import Expectation

ROOT_USER = Check("process.root", ERROR, "Ansible's user is not root, where Ray runs without containers")
RAY_FOUND = Check("process.ray", ERROR, "the command ray is found, where Ray runs without containers")
ADDRESS = Check("process.address", ERROR, "other nodes reach the host at an address, where Ray runs without containers")
OTHER_RAY = Check("process.other_ray", WARNING, "no other Ray runs on the host, where Ray runs without containers")
PROCESS_CHECKS = (ROOT_USER, RAY_FOUND, ADDRESS, OTHER_RAY)
MOST_LISTED = 4


def process_problems(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    found = machine.process
    if found is None:
        return
    if machine.uid == 0:
        yield Problem(
            ROOT_USER,
            "Ansible is root here, and a node without a container runs as Ansible's user: every job would be root",
            "connect as a user without root (ansible_user), and remove ansible_become for this host",
        )
    if not found.ray:
        yield Problem(
            RAY_FOUND,
            "the command ray is neither beside ray_node_python nor on the system's PATH",
            "set ray_node_python to the Python in whose environment Ray and verl are installed",
        )
    if not found.address:
        yield Problem(
            ADDRESS,
            "no address was found at which other nodes reach this host",
            "set ray_node_address to an IP address of this host; a loopback makes gloo and NCCL fail",
        )
    if found.others:
        listed = ", ".join(f"{ray.program} {ray.pid} of uid {ray.user}" for ray in found.others[:MOST_LISTED])
        more = f" and {len(found.others) - MOST_LISTED} more" if len(found.others) > MOST_LISTED else ""
        yield Problem(
            OTHER_RAY,
            f"another Ray runs on this host ({listed}{more}); it is left alone",
            "end it if it is not needed (its owner, with `ray stop`): it may use the same GPUs and ports",
        )
