# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges what all machines have answered. Runs on the controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..argus.common.findings import ERROR, SEVERITIES, Finding
from ..argus.common.text import nearest
from ..argus.launcher.schema import MalformedError, parse
from ..cluster.machine import Machine
from .all_checks import all_checks
from .checks import Context, Problem, Section, Topic, accepted
from .expectation import Expectation
from .tier import Tier
from .topics import TOPICS

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


@dataclass(frozen=True)
class Judged:
    """The result for all machines.

    findings: worst first. checks: the keys of those that were made. silent: hosts without any answer.
    hardware: by host, the cells of a table by the title of the column.
    """

    tier: Tier
    hosts: Sequence[str]
    silent: Sequence[str]
    checks: Sequence[str]
    findings: Sequence[Finding]
    hardware: Mapping[str, Mapping[str, str]]
    sections: Sequence[Section] = ()

    def state(self, host: str, check: str) -> str:
        """The worst severity of a check for a host: "ok" without a finding, empty if it was not made."""
        found = [each.severity for each in self.findings if (each.where, each.key) == (host, check)]
        # What does not answer was not checked.
        answers = f"{check.partition('.')[0]}.answers"
        is_late = any((each.where, each.key) == (host, answers) for each in self.findings)
        return min(found, key=SEVERITIES.index, default="" if is_late or host in self.silent else "ok")

    def to_json(self) -> dict[str, Any]:
        return {
            "tier": self.tier.value,
            "hosts": list(self.hosts),
            "silent": list(self.silent),
            "findings": [finding.as_dict() for finding in self.findings],
            "hardware": {host: dict(cells) for host, cells in self.hardware.items()},
            "checks": {host: {key: self.state(host, key) for key in self.checks} for host in self.hosts},
            "sections": [asdict(section) for section in self.sections],
        }


def judged(
    hosts: Sequence[str],
    probed: Mapping[str, Probed],
    tier: Tier,
    accept: Sequence[str] = (),
    others: Iterable[Finding] = (),
    sections: Sequence[Section] = (),
    inventory: Iterable[str] = (),
) -> Judged:
    """Judge every host, compare the hosts, and apply what the operator accepts.

    hosts: those that should have answered; inventory: all that the operator can name, also if --limit leaves them out.
    others: findings of checks that a playbook has made, with their keys.
    """
    silent = [host for host in hosts if host not in probed]
    findings = [finding for one in probed.values() for finding in one.findings]
    hardware: dict[str, dict[str, str]] = {host: {} for host in probed}
    for topic in TOPICS:
        findings += _of_topic(topic, probed, hardware)
    findings = [*_once(findings), *others]
    found = [*accept_findings(accept, {*hosts, *inventory}), *(accepted(finding, accept) for finding in findings)]
    return Judged(
        tier,
        hosts,
        silent,
        [key for key, check in all_checks().items() if tier.includes(check.tier)],
        sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)),
        hardware,
        sections,
    )


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for all places that differ in nothing else."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        places.setdefault(replace(finding, where=""), []).append(finding.where)
    return [replace(finding, where=", ".join(dict.fromkeys(where))) for finding, where in places.items()]


def _of_topic(
    topic: Topic[Any], probed: Mapping[str, Probed], hardware: dict[str, dict[str, str]]
) -> Iterator[Finding]:
    answers: dict[str, Any] = {}
    for host, one in probed.items():
        stored = {"error": "no answer", **one.answers.get(topic.name, {})}
        try:
            answers[host] = parse(topic.kind, stored["answer"]) if "answer" in stored else None
        except MalformedError as error:
            stored = {"error": str(error)}
        if answers.get(host) is None:
            answers.pop(host, None)
            yield Problem(topic.answers, f"{topic.name}: {stored['error']}").finding(host)
            continue
        for problem in topic.judge(answers[host], one.context):
            yield problem.finding(host)
        hardware[host].update(topic.columns(answers[host]))
    contexts = {host: probed[host].context for host in answers}
    yield from topic.compare(answers, contexts)
    for host, cells in topic.cells(answers, contexts).items():
        hardware[host].update(cells)


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Leave out that a topic is late where another finding says already that the same thing does not answer."""
    said = set()
    for finding in findings:
        place = (finding.where, finding.key)
        if not finding.key.endswith(".answers") or place not in said:
            yield finding
        said.add(place)


def accept_findings(accept: Sequence[str], hosts: Iterable[str]) -> Iterator[Finding]:
    """What is wrong with the list of accepted keys."""
    checks, known_hosts = all_checks(), sorted(hosts)
    for entry in accept:
        key, at, host = entry.partition("@")
        if key not in checks:
            hint = nearest(key, checks)
            yield Finding(ACCEPT, f'there is no check "{key}"', hint or "docs/preflight.md lists all checks", ERROR)
        elif at and host not in known_hosts:
            hint = nearest(host, known_hosts)
            yield Finding(
                ACCEPT, f'"{entry}": there is no machine "{host}"', hint or "name a machine of the inventory", ERROR
            )
