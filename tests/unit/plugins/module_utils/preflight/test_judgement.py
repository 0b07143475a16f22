from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, NOTE, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import System
from ansible_collections.argus.verl.plugins.module_utils.preflight import judgement
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import (
    CHECKS,
    FAST,
    Context,
    Expectation,
    difference_findings,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import (
    Judgement,
    ProbedHost,
    group_findings,
    judge,
)
from samples import HEALTHY

CHECK = "gpu.mig"
PREFLIGHT = Path(judgement.__file__).parent
KEY = re.compile(r'(?:Problem|Invariant)\(\s*"([^"]+)"')


def probed(name: str, findings: Sequence[Finding] = (), kernel: str = "6.8") -> ProbedHost:
    machine = replace(HEALTHY, gpus=[], system=System(kernel=kernel))
    return ProbedHost(Context(name, machine, Expectation()), findings)


def judge_machines(*machines: ProbedHost, **options: Any) -> Judgement:
    by_name = {machine.context.host: machine for machine in machines}
    return judge(list(by_name), by_name, FAST, **options)


def test_problems_are_of_checks_in_the_table() -> None:
    used = {key for file in PREFLIGHT.glob("*.py") for key in KEY.findall(file.read_text())}
    assert len(used) > 60
    assert used <= set(CHECKS)


def test_the_hosts_that_differ_from_most_are_named() -> None:
    assert list(difference_findings(CHECK, "it", {})) == []
    assert list(difference_findings(CHECK, "it", {"a": "1", "b": "1", "c": ""})) == []
    (finding,) = difference_findings(CHECK, "it", {"a": "2", "b": "1", "c": "1", "d": ""})
    assert finding.where == "a" and "2 of 3" in finding.problem
    # The first of two that are equally frequent.
    assert [finding.where for finding in difference_findings(CHECK, "it", {"a": "1", "b": "2"})] == ["b"]


def test_findings_are_of_all_hosts_and_worst_first() -> None:
    warning, error = (Finding("a", "x", "", severity, "root.space") for severity in (WARNING, ERROR))
    other = Finding("d", "y", "", ERROR, "gpu.ecc")
    machines = {"a": probed("a", [warning, error]), "b": probed("b"), "c": probed("c", kernel="5.15")}
    result = judge([*machines, "d"], machines, FAST, others=[other])
    assert (result.silent, result.hosts, result.hardware["c"]) == (["d"], ["a", "b", "c", "d"], {"kernel": "5.15"})
    assert [(finding.severity, finding.where, finding.key) for finding in result.findings] == [
        (ERROR, "a", "root.space"),
        (ERROR, "d", "gpu.ecc"),
        (WARNING, "a", "root.space"),
        (WARNING, "c", "host.kernel"),
    ]


ECC = [Finding(host, "2 errors", "reset", ERROR, "gpu.ecc") for host in ("a", "b")]


@pytest.mark.parametrize(
    ("accept", "severities"),
    [
        ([], [ERROR, ERROR]),
        (["gpu.ecc"], [NOTE, NOTE]),
        (["gpu.ecc@a"], [ERROR, NOTE]),
        (["gpu.xid", "gpu.ecc@b"], [ERROR, NOTE]),
    ],
)
def test_accepted_findings_are_notes(accept: list[str], severities: list[str]) -> None:
    result = judge_machines(probed("a", ECC[:1]), probed("b", ECC[1:]), accept=accept)
    assert [finding.severity for finding in result.findings] == severities
    for finding in result.findings:
        assert finding.problem == ("2 errors" if finding.severity == ERROR else "accepted: 2 errors")
    note = Finding("a", "not known", "", NOTE, "gpu.xid")
    assert judge_machines(probed("a", [note]), accept=["gpu.xid"]).findings == [note]
    other = Finding("a", "3 errors", "reset", ERROR, "gpu.ecc")
    assert group_findings([*ECC, other, ECC[0]]) == [Finding("a, b", "2 errors", "reset", ERROR, "gpu.ecc"), other]


@pytest.mark.parametrize(
    ("entry", "near"),
    [("gpu.ec", "gpu.ecc"), ("", ""), ("gpu.ecc@gpu-2", "gpu-1"), ("gpu.ecc@", "")],
)
def test_unknown_entries_are_errors(entry: str, near: str) -> None:
    (finding,) = judge_machines(probed("gpu-1"), accept=[entry]).findings
    assert (finding.where, finding.severity) == ("preflight_accept", ERROR)
    assert finding.remedy and near in finding.remedy
