# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares all machines, and applies what the operator accepts. Runs on the controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..argus.common.findings import ERROR, SEVERITIES, Finding
from ..argus.common.text import nearest
from ..cluster.machine import Machine
from . import gpu, host, network, software, storage
from .checks import Context, Expectation, accepted, differences
from .table import CHECKS

ACCEPT = "preflight_accept"


@dataclass(frozen=True)
class Probed:
    """The result of machine_info for one host."""

    context: Context
    findings: Sequence[Finding]

    @classmethod
    def from_json(cls, host: str, result: Mapping[str, Any]) -> Probed:
        context = Context(host, Machine.from_json(result["machine"]), Expectation.from_json(result["expect"]))
        return cls(context, [Finding(**finding) for finding in result["findings"]])


@dataclass(frozen=True)
class Judged:
    """The result for all machines.

    findings: worst first. silent: hosts without any answer. measured: what the all-reduce has measured, in lines.
    hardware: by host, the cells of a table by the title of the column.
    """

    tier: str
    hosts: Sequence[str]
    silent: Sequence[str]
    findings: Sequence[Finding]
    hardware: Mapping[str, Mapping[str, str]]
    measured: Sequence[str] = ()


def judged(
    hosts: Sequence[str],
    probed: Mapping[str, Probed],
    tier: str,
    accept: Sequence[str] = (),
    others: Iterable[Finding] = (),
    measured: Sequence[str] = (),
    inventory: Iterable[str] = (),
) -> Judged:
    """Compare the hosts, and apply what the operator accepts.

    hosts: those that should have answered; inventory: all that the operator can name, also if --limit leaves them out.
    others: findings of checks that a playbook has made, with their keys.
    """
    contexts = {host: machine.context for host, machine in probed.items()}
    cells = network.cells(contexts)
    findings = [
        *(finding for machine in probed.values() for finding in machine.findings),
        *_compared(contexts),
        *network.network_findings(contexts),
        *storage.mount_findings(contexts),
        *others,
    ]
    findings = [*accept_findings(accept, {*hosts, *inventory}), *(accepted(finding, accept) for finding in findings)]
    return Judged(
        tier,
        hosts,
        [host for host in hosts if host not in probed],
        sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)),
        {host: {**_columns(context.machine), **cells.get(host, {})} for host, context in contexts.items()},
        measured,
    )


def _compared(contexts: Mapping[str, Context]) -> Iterator[Finding]:
    values: dict[tuple[str, str], dict[str, str]] = {}
    for name, (machine, expected) in ((name, (each.machine, each.expected)) for name, each in contexts.items()):
        for key, what, value in (
            *gpu.compared(machine, expected),
            *host.compared(machine),
            *software.compared(machine),
        ):
            # NCCL has two packages, of which a machine has one.
            if value:
                values.setdefault((key, what), {})[name] = value
    for (key, what), by_host in values.items():
        yield from differences(key, what, by_host)


def _columns(machine: Machine) -> dict[str, str]:
    gpus = machine.gpus or machine.amd_gpus
    columns = {"GPUs": gpu.models(gpus), "driver": gpus[0].driver_version} if gpus else {}
    return {**columns, "kernel": machine.system.kernel}


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for all places that differ in nothing else."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        places.setdefault(replace(finding, where=""), []).append(finding.where)
    return [replace(finding, where=", ".join(dict.fromkeys(where))) for finding, where in places.items()]


def accept_findings(accept: Sequence[str], hosts: Iterable[str]) -> Iterator[Finding]:
    """What is wrong with the list of accepted keys."""
    known_hosts = sorted(hosts)
    for entry in accept:
        key, at, host = entry.partition("@")
        if key not in CHECKS:
            hint = nearest(key, CHECKS)
            yield Finding(ACCEPT, f'there is no check "{key}"', hint or "docs/preflight.md lists all checks", ERROR)
        elif at and host not in known_hosts:
            hint = nearest(host, known_hosts)
            yield Finding(
                ACCEPT, f'"{entry}": there is no machine "{host}"', hint or "name a machine of the inventory", ERROR
            )
