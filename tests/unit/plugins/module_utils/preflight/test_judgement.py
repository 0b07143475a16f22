from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, NOTE, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.preflight import judgement, topics
from ansible_collections.argus.verl.plugins.module_utils.preflight.all_checks import PLAY_CHECKS, all_checks
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import (
    CLOCK,
    REACHABLE,
    Check,
    Context,
    Problem,
    Section,
    common,
    differences,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.expectation import Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import (
    Judged,
    Probed,
    grouped,
    judged,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import MACHINE_CHECKS
from ansible_collections.argus.verl.plugins.module_utils.preflight.page import page
from ansible_collections.argus.verl.plugins.module_utils.preflight.tier import Tier
from samples import HEALTHY

CHECK = Check("a.b", WARNING, "it works", "repair it")
ANSWERS: Mapping[str, Any] = {
    "host": {"answer": {"kernel": "6.8"}},
    "gpu": {"answer": {"installed": False}},
    "amd": {"answer": {}},
    "software": {"answer": {}},
    "network": {"answer": {"hostname": "h"}},
    "storage": {"answer": {}},
}


def probed(name: str, findings: Sequence[Finding] = (), /, **answers: Any) -> Probed:
    return Probed(Context(name, HEALTHY, Expectation()), findings, {**ANSWERS, **answers})


def judge(*machines: Probed, tier: Tier = Tier.FAST, **options: Any) -> Judged:
    by_name = {machine.context.host: machine for machine in machines}
    return judged(list(by_name), by_name, tier, **options)


# --- Checks


def test_tiers_include_the_ones_before() -> None:
    assert [[tier.includes(other) for other in Tier] for tier in Tier] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_a_problem_becomes_a_finding() -> None:
    assert Problem(CHECK, "broken").finding("h") == Finding("h", "broken", "repair it", WARNING, "a.b")
    assert Problem(CHECK, "broken", "x", ERROR).finding("h") == Finding("h", "broken", "x", ERROR, "a.b")


def test_the_hosts_that_differ_from_most_are_named() -> None:
    assert list(differences(CHECK, "it", {})) == []
    assert list(differences(CHECK, "it", {"a": "1", "b": "1", "c": ""})) == []
    (finding,) = differences(CHECK, "it", {"a": "2", "b": "1", "c": "1", "d": ""})
    assert (finding.where, finding.what) == ("a", "it is 2, on 2 of 3 machines it is 1")
    # The first of two that are equally frequent.
    assert [each.where for each in differences(CHECK, "it", {"a": "1", "b": "2"})] == ["b"]
    assert common({}) == ""


def test_keys_are_unique_and_named_after_their_topics() -> None:
    keys = [check.key for topic in topics.TOPICS for check in (topic.answers, *topic.checks)]
    keys += [check.key for check in (*MACHINE_CHECKS, *PLAY_CHECKS, REACHABLE, CLOCK)]
    # nvidia-smi that does not answer is one check.
    assert sorted(keys) == sorted([*all_checks(), "gpu.answers"])
    for topic in topics.TOPICS:
        assert all(check.key.startswith(f"{topic.name}.") for check in topic.checks)
    for check in all_checks().values():
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", check.key)
        assert check.severity in (ERROR, WARNING)
        assert check.about
        assert not check.about.endswith(".")


def test_this_machine_answers() -> None:
    found = topics.reading(Tier.FAST, Expectation()).answers()
    result = judge(Probed(Context("here", HEALTHY, Expectation()), [], found))
    assert set(found) == {"gpu", "amd", "host", "software", "network", "storage"}
    assert not [finding for finding in result.findings if finding.key.endswith(".answers")]
    assert result.hardware["here"]["kernel"]


# --- Judgement


def test_healthy_machines() -> None:
    result = judge(probed("a"), probed("b"))
    assert (result.findings, result.silent, result.hosts) == ([], [], ["a", "b"])
    assert result.hardware == {"a": {"kernel": "6.8"}, "b": {"kernel": "6.8"}}
    assert result.state("a", "gpu.ecc") == "ok"


def test_findings_are_of_all_hosts_and_worst_first() -> None:
    warning, error = (Finding("a", "x", "", severity, "root.space") for severity in (WARNING, ERROR))
    bare = {"kernel": "6.8", "ray": [{"pid": 1, "name": "raylet"}]}
    other = Finding("c", "y", "", ERROR, "gpu.ecc")
    machines = (probed("a", [warning, error]), probed("b", host={"answer": bare}), probed("c"))
    result = judge(*machines, others=[other])
    assert [(each.severity, each.where, each.key) for each in result.findings] == [
        (ERROR, "a", "root.space"),
        (ERROR, "c", "gpu.ecc"),
        (WARNING, "a", "root.space"),
        (WARNING, "b", "host.ray"),
    ]
    assert (result.state("a", "root.space"), result.state("b", "root.space")) == (ERROR, "ok")


def test_machines_are_compared_with_each_other() -> None:
    result = judge(probed("a"), probed("b"), probed("c", host={"answer": {"kernel": "5.15"}}))
    assert [(each.where, each.key) for each in result.findings] == [("c", "host.kernel")]


def test_topics_that_do_not_answer() -> None:
    result = judge(
        probed("a", host={"error": "no answer in time"}),
        probed("b", host={"answer": {"kernel": 7}}),
        Probed(Context("c", HEALTHY, Expectation()), [], {**ANSWERS, "host": {}}),
    )
    assert [(each.where, each.key, each.severity, each.what) for each in result.findings] == [
        ("a", "host.answers", ERROR, "host: no answer in time"),
        ("b", "host.answers", ERROR, "host: kernel: is not text"),
        ("c", "host.answers", ERROR, "host: no answer"),
    ]
    assert all(each.todo for each in result.findings)
    assert (result.state("a", "host.answers"), result.state("a", "host.kernel")) == (ERROR, "")
    assert result.state("a", "gpu.ecc") == "ok"


def test_a_driver_that_does_not_answer_is_one_finding() -> None:
    basic = Finding("a", "nvidia-smi fails", "", ERROR, "gpu.answers")
    result = judge(probed("a", [basic], gpu={"error": "no answer in time"}))
    assert result.findings == [basic]


def test_machines_without_an_answer() -> None:
    silent = Finding("b", "does not answer", "", ERROR, REACHABLE.key)
    result = judged(["a", "b"], {"a": probed("a")}, Tier.FAST, others=[silent])
    assert result.findings == [silent]
    assert (result.silent, result.state("b", "gpu.ecc"), result.state("b", "machine.reachable")) == (["b"], "", ERROR)


def test_the_result_of_the_module_is_parsed() -> None:
    finding = Finding("a", "x", "y", ERROR, "gpu.count")
    result = {"machine": HEALTHY.to_json(), "expect": {"gpus": 4}, "findings": [finding.as_dict()]}
    found = Probed.from_json("a", result)
    assert found == Probed(Context("a", HEALTHY, Expectation(gpus=4)), [finding], {})


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
    result = judge(probed("a", ECC[:1]), probed("b", ECC[1:]), accept=accept)
    assert [finding.severity for finding in result.findings] == severities
    for finding in result.findings:
        assert finding.what == ("2 errors" if finding.severity == ERROR else "accepted: 2 errors")


def test_a_note_is_not_accepted_again() -> None:
    note = Finding("a", "not known", "", NOTE, "gpu.xid")
    assert judge(probed("a", [note]), accept=["gpu.xid"]).findings == [note]


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
    assert judge(probed("gpu-1"), accept=[entry]).findings == [Finding("preflight_accept", what, todo, ERROR)]


# --- Showing


def test_equal_findings_of_several_hosts_are_one_row() -> None:
    other = Finding("a", "3 errors", "reset", ERROR, "gpu.ecc")
    assert grouped([*ECC, other, ECC[0]]) == [Finding("a, b", "2 errors", "reset", ERROR, "gpu.ecc"), other]


SECTION = Section("Who reaches <whom>", ["from", "to"], [["a", "<b>"]])


def test_json() -> None:
    result = judged(["a", "b"], {"a": probed("a", ECC[:1])}, Tier.FAST, sections=[SECTION]).to_json()
    assert (result["tier"], result["silent"], result["hardware"]) == ("fast", ["b"], {"a": {"kernel": "6.8"}})
    assert type(result["tier"]) is str
    assert result["findings"][0] == ECC[0].as_dict()
    assert (result["checks"]["a"]["gpu.ecc"], result["checks"]["b"]["gpu.ecc"]) == (ERROR, "")
    assert result["sections"] == [{"title": "Who reaches <whom>", "header": ["from", "to"], "rows": [["a", "<b>"]]}]


def test_page_is_complete_and_self_contained() -> None:
    hostile = Finding("a", "<script>alert(1)</script>\x1b[31m", "a & b", ERROR, "gpu.ecc")
    silent = Finding("b", "does not answer", "", WARNING, REACHABLE.key)
    result = judged(["a", "b"], {"a": probed("a", [hostile])}, Tier.FAST, others=[silent], sections=[SECTION])
    text = page(result, "Preflight of <mvp>", "2026-01-01")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in text
    assert not re.search(r"(src|href|url|@import|http)", text)
    assert "Preflight of &lt;mvp&gt;" in text
    assert "a &amp; b" in text
    assert "<td>&lt;b&gt;</td>" in text
    assert "Who reaches &lt;whom&gt;" in text
    for key in result.checks:
        assert f"<code>{key}</code>" in text
    # What was found is first in the matrix.
    matrix = text[text.index("<h2>Checks</h2>") :]
    assert matrix.index("gpu.ecc") < matrix.index("machine.reachable") < matrix.index("gpu.xid")
    assert '<span class="error">1 error</span>, <span class="warning">1 warning</span>' in text
    assert '<span class="quiet">0 notes</span>' in text
    assert re.search(r"gpu\.ecc</code>.*?<span class=\"error\">error</span></td><td><span class=\"\">-</span>", matrix)
    assert re.search(r"gpu\.xid</code>.*?<span class=\"ok\">ok</span></td><td><span class=\"\">-</span>", matrix)


def test_page_without_findings() -> None:
    text = page(judge(probed("a")), "t", "w")
    assert "<p>None.</p>" in text
    assert '<span class="quiet">0 errors</span>' in text


def test_the_name_of_the_variable() -> None:
    assert judgement.ACCEPT == "preflight_accept"
