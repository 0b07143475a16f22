# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges all machines: compares them and their all-reduce, and applies what the operator accepts. On the controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..argus.common.findings import ERROR, NOTE, SEVERITIES, WARNING, Finding
from ..argus.common.text import spelling_hint
from ..argus.fabric.fault_search import Bandwidth, Verdict, from_json
from ..cluster.machine import Machine
from . import gpu, host, network, storage
from .checks import CHECKS, Context, Expectation, Problem, difference_findings, mark_accepted

# The operator's variable with the accepted keys; also the place of findings about it.
ACCEPT = "preflight_accept"
# Differences of clocks. Heartbeats, and the order of a job's events, depend on the clocks of several machines.
CLOCK_WARNING_SECONDS = 5.0
CLOCK_ERROR_SECONDS = 30.0


@dataclass(frozen=True)
class ProbedHost:
    """The result of machine_info for one host."""

    context: Context
    # What is wrong with this machine alone.
    findings: Sequence[Finding]

    @classmethod
    def from_json(cls, host: str, result: Mapping[str, Any]) -> ProbedHost:
        context = Context(host, Machine.from_json(result["machine"]), Expectation.from_json(result["expect"]))
        return cls(context, [Finding(**finding) for finding in result["findings"]])


@dataclass(frozen=True)
class Judgement:
    """The result for all machines."""

    # FAST or DEEP.
    tier: str
    # The hosts that should have answered, and those that did not.
    hosts: Sequence[str]
    silent: Sequence[str]
    # Worst first.
    findings: Sequence[Finding]
    # By host, the cells of a table by the title of their column.
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

    hosts: those that should have answered. probed: those that did. accept: the keys that the operator accepts.
    others: findings of checks of the playbook itself. measured: see Judgement.
    inventory: hosts that the operator can name as well, because only --limit leaves them out.
    """
    contexts = {host: machine.context for host, machine in probed.items()}
    network_cells = network.hardware_cells(contexts)
    findings = [
        *(finding for machine in probed.values() for finding in machine.findings),
        *_invariant_findings(contexts),
        *network.network_findings(contexts),
        *storage.mount_findings(contexts),
        *others,
    ]
    findings = [
        *accept_findings(accept, {*hosts, *inventory}),
        *(mark_accepted(finding, accept) for finding in findings),
    ]
    return Judgement(
        tier,
        hosts,
        [host for host in hosts if host not in probed],
        sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)),
        {
            host: {**_hardware_cells(context.machine), **network_cells.get(host, {})}
            for host, context in contexts.items()
        },
        measured,
    )


def _invariant_findings(contexts: Mapping[str, Context]) -> Iterator[Finding]:
    values: dict[tuple[str, str], dict[str, str]] = {}
    for name, context in contexts.items():
        for key, title, value in (
            *gpu.gpu_invariants(context.machine, context.expected),
            *host.system_invariants(context.machine),
            *host.software_invariants(context.machine),
        ):
            # NCCL has two packages, of which a machine has one.
            if value:
                values.setdefault((key, title), {})[name] = value
    for (key, title), by_host in values.items():
        yield from difference_findings(key, title, by_host)


def _hardware_cells(machine: Machine) -> dict[str, str]:
    gpus = gpu.gpus_of(machine)
    columns = {"GPUs": gpu.models_text(gpus), "driver": gpus[0].driver_version} if gpus else {}
    return {**columns, "kernel": machine.system.kernel}


def group_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings that differ only in their place: one finding names all places."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        places.setdefault(replace(finding, where=""), []).append(finding.where)
    return [replace(finding, where=", ".join(dict.fromkeys(where))) for finding, where in places.items()]


def accept_findings(accept: Sequence[str], hosts: Iterable[str]) -> Iterator[Finding]:
    """Yield an error for each entry of preflight_accept that names no check or no host."""
    known_hosts = sorted(hosts)
    for entry in accept:
        key, at, host = entry.partition("@")
        if key not in CHECKS:
            hint = spelling_hint(key, CHECKS)
            yield Finding(ACCEPT, f'there is no check "{key}"', hint or "docs/preflight.md lists all checks", ERROR)
        elif at and host not in known_hosts:
            hint = spelling_hint(host, known_hosts)
            problem = f'"{entry}": there is no machine "{host}"'
            yield Finding(ACCEPT, problem, hint or "name a machine of the inventory", ERROR)


def clock_bounds(probed: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return by how many seconds a machine's clock is ahead of the controller's, at least and at most.

    probed: the result of machine_info. Its `time` was read at some moment between `sent` and `received`, times of
    the controller. So a slow connection widens the bounds, and is not taken for a difference of clocks. None without
    these times.
    """
    try:
        time, clock = float(probed["time"]), probed["clock"]
        return time - float(clock["received"]), time - float(clock["sent"])
    except (KeyError, TypeError, ValueError):
        return None


def clock_findings(probed: Mapping[str, Mapping[str, Any]], head: str) -> Iterator[Finding]:
    """Yield a finding for each machine whose clock certainly differs from that of the head's machine.

    probed: the results of machine_info by machine. head: the head's machine; without its result, nothing is compared.
    """
    offsets = {machine: ahead for machine, result in probed.items() if (ahead := clock_bounds(result))}
    for machine, (least, most) in offsets.items() if head in offsets else ():
        # In the difference, the clock of the controller cancels out.
        certain = max(least - offsets[head][1], 0.0) + min(most - offsets[head][0], 0.0)
        if machine != head and abs(certain) > CLOCK_WARNING_SECONDS:
            side = "ahead of" if certain > 0 else "behind"
            yield Problem(
                "machine.clock",
                f"its clock is at least {abs(certain):.0f} s {side} that of {head}",
                severity=ERROR if abs(certain) > CLOCK_ERROR_SECONDS else WARNING,
            ).finding(machine)


# The all-reduce over all workers of a running cluster: the checks collective.*.
SILENT_REMEDY = "look whether its machine and its processes hang; stop its container, and run cluster_up.yml"
ALL_WORKERS = "all workers"


def all_reduce_findings(answer: Mapping[str, Any]) -> list[Finding]:
    """Return the problems of an all-reduce. answer: of the verb all_reduce; {} if the cluster does not run."""
    unlisted = Problem(
        "collective.skipped", "no all-reduce with it: Ray does not list it", "cluster_up.yml starts it", NOTE
    )
    absent = [unlisted.finding(name) for name in answer.get("absent", [])]
    if not answer.get("whole"):
        reason, failed = answer.get("skipped"), answer.get("msg")
        severity = NOTE if reason else WARNING
        problem = f"no all-reduce: {reason or failed}"
        skipped = Problem("collective.skipped", problem, severity=severity).finding(ALL_WORKERS)
        return [*absent, *([skipped] if reason or failed else [])]
    verdict = from_json(dict(answer))
    findings = [_node_finding(verdict, name) for name in verdict.bad]
    for first, second in verdict.links:
        problem = f"it and {first}: {_rate_text(verdict.measured[first, second])}; both are fine with other workers"
        findings.append(_bandwidth_problem(verdict.measured[first, second], problem).finding(second))
    if verdict.group:
        measured = verdict.measured.get(verdict.group, verdict.whole)
        problem = f"{' and '.join(verdict.group)} together: {_rate_text(measured)}"
        parts = "" if len(verdict.group) == 2 else ", although their halves are fine"
        findings.append(_bandwidth_problem(measured, problem + parts).finding(", ".join(verdict.group)))
    if not findings and verdict.whole.bandwidth is None:
        # Every pair has failed.
        findings.append(Problem("collective.works", _rate_text(verdict.whole)).finding(ALL_WORKERS))
    return [*absent, *findings]


def _node_finding(verdict: Verdict, name: str) -> Finding:
    if silent := verdict.measured.get((name,)):
        problem = f"runs nothing that Ray starts on it: {silent.error}"
        return Problem("collective.works", problem, SILENT_REMEDY).finding(name)
    pair = [group for group in verdict.measured if len(group) == 2 and name in group][-1]
    other = next(node for node in pair if node != name)
    problem = f"with {other}, which is fine with others: {_rate_text(verdict.measured[pair])}"
    if verdict.usual:
        problem += f" (most pairs: {verdict.usual:.2f} GB/s)"
    return _bandwidth_problem(verdict.measured[pair], problem).finding(name)


def _bandwidth_problem(measured: Bandwidth, text: str) -> Problem:
    return Problem("collective.works" if measured.bandwidth is None else "collective.bandwidth", text)


def _rate_text(measured: Bandwidth) -> str:
    return f"fails ({measured.error})" if measured.bandwidth is None else f"{measured.bandwidth:.2f} GB/s"


def all_reduce_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return what was measured, as lines of text; none if nothing was measured."""
    if not answer.get("whole"):
        return []
    verdict = from_json(dict(answer))
    size = f"{answer['processes']} processes, {answer['backend']}"
    first = f"All-reduce of all workers ({size}): {_rate_text(verdict.whole)}"
    return [first, *(f"{', '.join(group)}: {_rate_text(measured)}" for group, measured in verdict.measured.items())]
