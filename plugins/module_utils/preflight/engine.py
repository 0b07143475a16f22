# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the container engine of one machine: machine.engine, machine.packages, machine.node_name, podman.*."""

from __future__ import annotations

from collections.abc import Iterator

from ..cluster.engine import CLUSTER_LABEL, DOCKER, PODMAN, EngineStatus
from ..cluster.machine import Machine
from .checks import Expectation, Problem


def engine_problems(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    engine = machine.engine
    remedy = {
        EngineStatus.MISSING: f'install "{engine.name}" on this machine',
        EngineStatus.DENIED: f'add the user "{machine.user}" to the group "docker", or set ansible_become: true'
        if engine.name == DOCKER
        else f'give user "{machine.user}" subordinate ids (usermod --add-subuids, --add-subgids), or set '
        "ansible_become: true",
        EngineStatus.NO_ANSWER: "start its daemon (systemctl enable --now docker) and check its log",
        EngineStatus.FAILED: "run the command on the machine and fix the error that it prints",
    }.get(engine.status)
    if remedy:
        text = f"container engine not usable, expected one that answers: {engine.error}"
        yield Problem("machine.engine", text, remedy)


def package_problems(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    if machine.engine.name == DOCKER and machine.engine.status != EngineStatus.NONE:
        for name in machine.missing_packages:
            yield Problem(
                "machine.packages",
                f"{machine.python} has no package {name}, which is needed to start containers",
                f"install it there (python3-{name}, or pip install {name}), or set another ansible_python_interpreter",
            )


def container_name_problems(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    for name, container in machine.containers.items():
        if container.cluster == machine.cluster:
            continue
        owner = f'cluster "{container.cluster}"' if container.cluster else f"no cluster (no label {CLUSTER_LABEL})"
        yield Problem(
            "machine.node_name",
            f'the name "{name}" is taken by a container of {owner} ({container.state}, id {container.id[:12]}), '
            f'expected free or of cluster "{machine.cluster}"',
            "ask its owner to remove or rename it, or rename the node in the inventory",
        )


def podman_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    engine = machine.engine
    if engine.name != PODMAN or engine.status != EngineStatus.OK:
        return
    if not engine.lingers:
        yield Problem(
            "podman.lingers",
            f'systemd ends the containers of user "{machine.user}" when its last connection is closed',
            f"loginctl enable-linger {machine.user}",
        )
    elif not engine.boots:
        scope = "--user " if engine.rootless else ""
        yield Problem(
            "podman.boot",
            "podman-restart.service is not enabled: nodes do not start again after the machine has booted",
            f"systemctl {scope}enable podman-restart.service, or run cluster_up.yml after each boot",
        )
    if not engine.limits_pids:
        yield Problem(
            "podman.limits",
            "Podman without root cannot limit processes here",
            "use version 2 of cgroups, and delegate the controller pids to users (Delegate= of user@.service)",
        )
    if not engine.tun and not expectation.address:
        yield Problem(
            "podman.tun",
            f'user "{machine.user}" may not read and write /dev/net/tun, which networks of Podman without root need',
            "modprobe tun; chmod 0666 /dev/net/tun (the mode that udev gives it), or set cluster_network: host",
        )
