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
    differences,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import (
    Judgement,
    ProbedHost,
    grouped,
    judge,
)
from samples import HEALTHY

CHECK = "gpu.mig"
PREFLIGHT = Path(judgement.__file__).parent
KEY = re.compile(r'(?:Problem|Compared)\(\s*"([^"]+)"')


def probed(name: str, findings: Sequence[Finding] = (), kernel: str = "6.8") -> ProbedHost:
    machine = replace(HEALTHY, gpus=[], system=System(kernel=kernel))
    return ProbedHost(Context(name, machine, Expectation()), findings)


def judge_machines(*machines: ProbedHost, **options: Any) -> Judgement:
    by_name = {machine.context.host: machine for machine in machines}
    return judge(list(by_name), by_name, FAST, **options)


# --- Checks


def test_problems_are_of_checks_in_the_table() -> None:
    used = {key for file in PREFLIGHT.glob("*.py") for key in KEY.findall(file.read_text())}
    assert len(used) > 60
    assert used <= set(CHECKS)


def test_the_hosts_that_differ_from_most_are_named() -> None:
    assert list(differences(CHECK, "it", {})) == []
    assert list(differences(CHECK, "it", {"a": "1", "b": "1", "c": ""})) == []
    (finding,) = differences(CHECK, "it", {"a": "2", "b": "1", "c": "1", "d": ""})
    assert (finding.where, finding.what) == ("a", "it is 2, on 2 of 3 machines it is 1")
    # The first of two that are equally frequent.
    assert [each.where for each in differences(CHECK, "it", {"a": "1", "b": "2"})] == ["b"]


def test_variables_may_be_text() -> None:
    ports = [{"node": "h", "use": "GCS", "first": 1, "last": 2}]
    values = {"gpus": "8", "disk_free_gib": "80", "shared_root_fstypes": "nfs,nfs4", "hcas": "", "ports": ports}
    expected = Expectation.from_json(values)
    assert (expected.gpus, expected.disk_free_gib, expected.hcas) == (8, 80.0, 0)
    assert (expected.shared_root_fstypes, expected.ports[0].last) == (["nfs", "nfs4"], 2)


# --- Judgement


def test_healthy_machines() -> None:
    result = judge_machines(probed("a"), probed("b"))
    assert (result.findings, result.silent, result.hosts) == ([], [], ["a", "b"])
    assert result.hardware == {"a": {"kernel": "6.8"}, "b": {"kernel": "6.8"}}


def test_findings_are_of_all_hosts_and_worst_first() -> None:
    warning, error = (Finding("a", "x", "", severity, "root.space") for severity in (WARNING, ERROR))
    other = Finding("c", "y", "", ERROR, "gpu.ecc")
    result = judge_machines(probed("a", [warning, error]), probed("b"), probed("c"), others=[other])
    assert [(each.severity, each.where, each.key) for each in result.findings] == [
        (ERROR, "a", "root.space"),
        (ERROR, "c", "gpu.ecc"),
        (WARNING, "a", "root.space"),
    ]


def test_machines_are_compared_with_each_other() -> None:
    result = judge_machines(probed("a"), probed("b"), probed("c", kernel="5.15"))
    assert [(each.where, each.key) for each in result.findings] == [("c", "host.kernel")]


def test_machines_without_an_answer() -> None:
    silent = Finding("b", "does not answer", "", ERROR, "machine.reachable")
    result = judge(["a", "b"], {"a": probed("a")}, FAST, others=[silent])
    assert result.findings == [silent]
    assert result.silent == ["b"]


# --- Acceptance

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
        assert finding.what == ("2 errors" if finding.severity == ERROR else "accepted: 2 errors")


def test_a_note_is_not_accepted_again() -> None:
    note = Finding("a", "not known", "", NOTE, "gpu.xid")
    assert judge_machines(probed("a", [note]), accept=["gpu.xid"]).findings == [note]


@pytest.mark.parametrize(
    ("entry", "what", "todo"),
    [
        ("gpu.ec", 'there is no check "gpu.ec"', 'did you mean "gpu.ecc"?'),
        ("", 'there is no check ""', "docs/preflight.md lists all checks"),
        ("gpu.ecc@gpu-2", '"gpu.ecc@gpu-2": there is no machine "gpu-2"', 'did you mean "gpu-1"?'),
        ("gpu.ecc@", '"gpu.ecc@": there is no machine ""', "name a machine of the inventory"),
    ],
)
def test_unknown_entries_are_errors(entry: str, what: str, todo: str) -> None:
    assert judge_machines(probed("gpu-1"), accept=[entry]).findings == [Finding("preflight_accept", what, todo, ERROR)]


# --- Showing


def test_equal_findings_of_several_hosts_are_one_row() -> None:
    other = Finding("a", "3 errors", "reset", ERROR, "gpu.ecc")
    assert grouped([*ECC, other, ECC[0]]) == [Finding("a, b", "2 errors", "reset", ERROR, "gpu.ecc"), other]
