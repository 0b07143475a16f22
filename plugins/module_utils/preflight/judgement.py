# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares all machines, and applies what the operator accepts. Runs on the controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..argus.common.findings import ERROR, NOTE, SEVERITIES, WARNING, Finding
from ..argus.common.text import spelling_hint
from ..argus.fabric.all_reduce import Bandwidth, Verdict, from_json
from ..cluster.machine import Machine
from . import gpu, host, network, shared_root
from .checks import CHECKS, Context, Expectation, Problem, differences, mark_known

# Judge the all-reduce over the workers.

SILENT = "look whether its machine and its processes hang; stop its container, and run cluster_up.yml"
ALL = "all workers"


def all_reduce_findings(answer: Mapping[str, Any]) -> list[Finding]:
    """The problems of an all-reduce. answer: of the verb all_reduce; {} if the cluster does not run."""
    away = Problem(
        "collective.skipped", "no all-reduce with it: Ray does not list it", "cluster_up.yml starts it", NOTE
    )
    absent = [away.finding(name) for name in answer.get("absent", [])]
    if not answer.get("whole"):
        reason, failed = answer.get("skipped"), answer.get("msg")
        severity = NOTE if reason else WARNING
        skipped = Problem("collective.skipped", f"no all-reduce: {reason or failed}", severity=severity).finding(ALL)
        return [*absent, *([skipped] if reason or failed else [])]
    verdict = from_json(dict(answer))
    findings = [_node_finding(verdict, name) for name in verdict.bad]
    for first, second in verdict.links:
        problem = f"it and {first}: {_rate(verdict.measured[first, second])}; both are fine with other workers"
        findings.append(_problem(verdict.measured[first, second], problem).finding(second))
    if verdict.group:
        measured = verdict.measured.get(verdict.group, verdict.whole)
        problem = f"{' and '.join(verdict.group)} together: {_rate(measured)}"
        parts = "" if len(verdict.group) == 2 else ", although their halves are fine"
        findings.append(_problem(measured, problem + parts).finding(", ".join(verdict.group)))
    if not findings and verdict.whole.bandwidth is None:
        # Every pair has failed.
        findings.append(Problem("collective.works", _rate(verdict.whole)).finding(ALL))
    return [*absent, *findings]


def _node_finding(verdict: Verdict, name: str) -> Finding:
    if silent := verdict.measured.get((name,)):
        return Problem("collective.works", f"runs nothing that Ray starts on it: {silent.error}", SILENT).finding(name)
    pair = [group for group in verdict.measured if len(group) == 2 and name in group][-1]
    other = next(node for node in pair if node != name)
    problem = f"with {other}, which is fine with others: {_rate(verdict.measured[pair])}"
    if verdict.usual:
        problem += f" (most pairs: {verdict.usual:.2f} GB/s)"
    return _problem(verdict.measured[pair], problem).finding(name)


def _problem(measured: Bandwidth, text: str) -> Problem:
    return Problem("collective.works" if measured.bandwidth is None else "collective.bandwidth", text)


def _rate(measured: Bandwidth) -> str:
    return f"fails ({measured.error})" if measured.bandwidth is None else f"{measured.bandwidth:.2f} GB/s"


def all_reduce_lines(answer: Mapping[str, Any]) -> list[str]:
    """What was measured; no lines if nothing was."""
    if not answer.get("whole"):
        return []
    verdict = from_json(dict(answer))
    first = f"All-reduce of all workers ({answer['processes']} processes, {answer['backend']}): {_rate(verdict.whole)}"
    return [first, *(f"{', '.join(group)}: {_rate(measured)}" for group, measured in verdict.measured.items())]


# The differences of clocks: heartbeats, and the order of a job's events, come from several machines.

WARNING_SECONDS = 5.0
ERROR_SECONDS = 30.0


def clock_bounds(probed: Mapping[str, Any]) -> tuple[float, float] | None:
    """At least and at most by how many seconds a clock is ahead of the controller's, from the result of machine_info.

    A machine was asked at `sent` and had answered at `received`: its time was read at some moment in between. So
    the time that the question and the answer took widens the bounds, and is not taken for a difference of clocks.
    """
    try:
        time, clock = float(probed["time"]), probed["clock"]
        return time - float(clock["received"]), time - float(clock["sent"])
    except (KeyError, TypeError, ValueError):
        return None


def clock_findings(probed: Mapping[str, Mapping[str, Any]], head: str) -> Iterator[Finding]:
    """Machines whose clocks certainly differ from that of the head's machine."""
    offsets = {machine: ahead for machine, result in probed.items() if (ahead := clock_bounds(result))}
    for machine, (least, most) in offsets.items() if head in offsets else ():
        # In the difference, the clock of the controller cancels out.
        certain = max(least - offsets[head][1], 0.0) + min(most - offsets[head][0], 0.0)
        if machine != head and abs(certain) > WARNING_SECONDS:
            side = "ahead of" if certain > 0 else "behind"
            yield Problem(
                "machine.clock",
                f"its clock is at least {abs(certain):.0f} s {side} that of {head}",
                severity=ERROR if abs(certain) > ERROR_SECONDS else WARNING,
            ).finding(machine)


ACCEPT = "preflight_accept"


@dataclass(frozen=True)
class ProbedHost:
    """The result of machine_info for one host."""

    context: Context
    findings: Sequence[Finding]

    @classmethod
    def from_json(cls, host: str, result: Mapping[str, Any]) -> ProbedHost:
        context = Context(host, Machine.from_json(result["machine"]), Expectation.from_json(result["expect"]))
        return cls(context, [Finding(**finding) for finding in result["findings"]])


@dataclass(frozen=True)
class Judgement:
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


def judge(
    hosts: Sequence[str],
    probed: Mapping[str, ProbedHost],
    tier: str,
    accept: Sequence[str] = (),
    others: Iterable[Finding] = (),
    measured: Sequence[str] = (),
    inventory: Iterable[str] = (),
) -> Judgement:
    """Compare the hosts, and apply what the operator accepts.

    hosts: those that should have answered; inventory: all that the operator can name, also if --limit leaves them out.
    others: findings of checks that a playbook has made, with their keys.
    """
    contexts = {host: machine.context for host, machine in probed.items()}
    cells = network.hardware_cells(contexts)
    findings = [
        *(finding for machine in probed.values() for finding in machine.findings),
        *_invariant_findings(contexts),
        *network.network_findings(contexts),
        *shared_root.mount_findings(contexts),
        *others,
    ]
    findings = [*accept_findings(accept, {*hosts, *inventory}), *(mark_known(finding, accept) for finding in findings)]
    return Judgement(
        tier,
        hosts,
        [host for host in hosts if host not in probed],
        sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)),
        {host: {**_columns(context.machine), **cells.get(host, {})} for host, context in contexts.items()},
        measured,
    )


def _invariant_findings(contexts: Mapping[str, Context]) -> Iterator[Finding]:
    values: dict[tuple[str, str], dict[str, str]] = {}
    for name, context in contexts.items():
        for key, title, value in (
            *gpu.invariants(context.machine, context.expected),
            *host.system_invariants(context.machine),
            *host.software_invariants(context.machine),
        ):
            # NCCL has two packages, of which a machine has one.
            if value:
                values.setdefault((key, title), {})[name] = value
    for (key, title), by_host in values.items():
        yield from differences(key, title, by_host)


def _columns(machine: Machine) -> dict[str, str]:
    gpus = gpu.gpus_of(machine)
    columns = {"GPUs": gpu.models(gpus), "driver": gpus[0].driver_version} if gpus else {}
    return {**columns, "kernel": machine.system.kernel}


def group_findings(findings: Iterable[Finding]) -> list[Finding]:
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
            hint = spelling_hint(key, CHECKS)
            yield Finding(ACCEPT, f'there is no check "{key}"', hint or "docs/preflight.md lists all checks", ERROR)
        elif at and host not in known_hosts:
            hint = spelling_hint(host, known_hosts)
            yield Finding(
                ACCEPT, f'"{entry}": there is no machine "{host}"', hint or "name a machine of the inventory", ERROR
            )
