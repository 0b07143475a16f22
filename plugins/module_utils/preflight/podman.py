# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with Podman, compared with what nodes need of it."""

from __future__ import annotations

from collections.abc import Iterator

from ..argus.common.findings import ERROR, WARNING
from ..cluster.engine import PODMAN, EngineStatus
from ..cluster.machine import Machine
from .checks import Check, Problem
from .expectation import Expectation

LINGERS = Check("podman.lingers", ERROR, "without root, containers outlive the connection of their user")
BOOT = Check("podman.boot", WARNING, "nodes start again after the machine has booted")
LIMITS = Check("podman.limits", WARNING, "the number of processes of a node can be limited")
TUN = Check("podman.tun", ERROR, "without root, containers can have a network of their own")
PODMAN_CHECKS = (LINGERS, BOOT, LIMITS, TUN)


def podman_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    engine = machine.engine
    if engine.name != PODMAN or engine.status != EngineStatus.OK:
        return
    if not engine.lingers:
        yield Problem(
            LINGERS,
            f'systemd ends the containers of user "{machine.user}" when its last connection is closed',
            f"loginctl enable-linger {machine.user}",
        )
    elif not engine.boots:
        scope = "--user " if engine.rootless else ""
        yield Problem(
            BOOT,
            "podman-restart.service is not enabled: nodes do not start again after the machine has booted",
            f"systemctl {scope}enable podman-restart.service, or run cluster_up.yml after each boot",
        )
    if not engine.limits_pids:
        yield Problem(
            LIMITS,
            "Podman without root cannot limit processes here: ray_node_pids_limit has no effect",
            "use version 2 of cgroups, and delegate the controller pids to users (Delegate= of user@.service)",
        )
    if not engine.tun and not expectation.address:
        yield Problem(
            TUN,
            f'user "{machine.user}" may not read and write /dev/net/tun, which networks of Podman without root need',
            "modprobe tun; chmod 0666 /dev/net/tun (the mode that udev gives it), or set cluster_network: host",
        )
