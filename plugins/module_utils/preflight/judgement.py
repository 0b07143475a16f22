# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares all machines, and applies what the operator accepts. Runs on the controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..argus.common.findings import ERROR, SEVERITIES, Finding
from ..argus.common.text import nearest
from ..cluster.machine import Machine
from . import network, storage
from .checks import Context, Expectation, accepted, differences
from .table import CHECKS, TIERS

ACCEPT = "preflight_accept"


@dataclass(frozen=True)
class Probed:
    """The result of machine_info for one host."""

    context: Context
    findings: Sequence[Finding]
    answers: Mapping[str, Mapping[str, Any]]

    @classmethod
    def from_json(cls, host: str, result: Mapping[str, Any]) -> Probed:
        context = Context(host, Machine.from_json(result["machine"]), Expectation.from_json(result["expect"]))
        return cls(context, [Finding(**finding) for finding in result["findings"]], result.get("answers") or {})

    @property
    def columns(self) -> dict[str, str]:
        return {title: cell for answer in self.answers.values() for title, cell in answer["columns"].items()}


@dataclass(frozen=True)
class Section:
    """A table, such as what the all-reduce has measured."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Judged:
    """The result for all machines.

    findings: worst first. checks: the keys of those that were made. silent: hosts without any answer.
    hardware: by host, the cells of a table by the title of the column.
    """

    tier: str
    hosts: Sequence[str]
    silent: Sequence[str]
    checks: Sequence[str]
    findings: Sequence[Finding]
    hardware: Mapping[str, Mapping[str, str]]
    sections: Sequence[Section] = ()

    def state(self, host: str, check: str) -> str:
        """The worst severity of a check for a host: "ok" without a finding, empty if it was not made."""
        severities = {finding.key: finding.severity for finding in reversed(self.findings) if finding.where == host}
        # What does not answer was not checked. The mounts are those of the shared root.
        topic = check.partition(".")[0]
        answers = {f"{topic}.answers", "root.answers" if topic == "storage" else ""}
        is_made = host not in self.silent and answers.isdisjoint(severities)
        return severities.get(check, "ok" if is_made else "")

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "checks": {host: {key: self.state(host, key) for key in self.checks} for host in self.hosts},
        }


def judged(
    hosts: Sequence[str],
    probed: Mapping[str, Probed],
    tier: str,
    accept: Sequence[str] = (),
    others: Iterable[Finding] = (),
    sections: Sequence[Section] = (),
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
        *_compared(probed),
        *network.network_findings(contexts),
        *storage.mount_findings(contexts),
        *others,
    ]
    findings = [*accept_findings(accept, {*hosts, *inventory}), *(accepted(finding, accept) for finding in findings)]
    return Judged(
        tier,
        hosts,
        [host for host in hosts if host not in probed],
        [key for key, check in CHECKS.items() if TIERS.index(check.tier) <= TIERS.index(tier)],
        sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)),
        {host: {**machine.columns, **cells.get(host, {})} for host, machine in probed.items()},
        sections,
    )


def _compared(probed: Mapping[str, Probed]) -> Iterator[Finding]:
    values: dict[tuple[str, str], dict[str, str]] = {}
    for host, machine in probed.items():
        for key, name, value in (row for answer in machine.answers.values() for row in answer["compared"]):
            if value:
                values.setdefault((key, name), {})[host] = value
    for (key, name), by_host in values.items():
        yield from differences(key, name, by_host)


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
