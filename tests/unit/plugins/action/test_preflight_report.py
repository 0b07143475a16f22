from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.action import preflight_report
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from samples import HEALTHY

RESULT = {
    "machine": HEALTHY.to_json(),
    "expect": {},
    "findings": [],
    "answers": {
        "host": {"answer": {"kernel": "6.8"}},
        "gpu": {"answer": {"installed": False}},
        "amd": {"answer": {}},
        "network": {"answer": {"hostname": "h"}},
        "storage": {"answer": {}},
        "software": {"answer": {}},
    },
}


GROUPS = {"head": ["a"], "workers": ["b", "c"]}


def arguments(*hosts: str, **others: Any) -> dict[str, Any]:
    given = {"hosts": hosts, "tier": "fast", "accept": [], "least": None, "findings": [], "sections": []}
    return {**given, "images": {}, "builds": {}, "archive": {}, **others}


def test_hosts_with_and_without_an_answer() -> None:
    hostvars: dict[str, Any] = {
        "a": {"__preflight": RESULT},
        "b": {},
        "c": {"__preflight": {"failed": True, "msg": "MODULE FAILURE"}},
    }
    result = preflight_report.judgement(arguments("a", "b", "c"), hostvars, GROUPS)
    assert result.silent == ["b", "c"]
    assert [(found.where, found.key) for found in result.findings] == [("c", "machine.reachable")]
    assert preflight_report.hardware_rows(result) == (["machine", "kernel"], [["a", "6.8"], ["b, c", "-"]])


def test_findings_and_tables_of_the_playbook() -> None:
    finding = Finding("a", "does not reach b", "open the port", ERROR, "gpu.ecc")
    section = {"title": "t", "header": ["h"], "rows": [["r"]]}
    given = arguments("a", findings=[finding.as_dict()], sections=[section], accept=["gpu.ecc"])
    result = preflight_report.judgement(given, {"a": {"__preflight": RESULT}}, {"head": ["a"], "workers": []})
    assert [each.what for each in result.findings] == ["accepted: does not reach b"]
    assert result.to_json()["sections"] == [section]


def test_images_that_are_missing() -> None:
    without = {**RESULT, "machine": replace(HEALTHY, images={"verl:1": None}).to_json()}

    def missing(**others: Any) -> list[tuple[str, str, str]]:
        given = arguments("a", images={"cuda": "verl:1"}, **others)
        result = preflight_report.judgement(given, {"a": {"__preflight": without}}, {"head": ["a"], "workers": ["a"]})
        return [(found.where, found.key, found.severity) for found in result.findings]

    assert missing() == [("a", "machine.image", ERROR)]
    builds = {"cuda": {"context": "/x"}}
    assert missing(builds=builds) == missing(archive={"path": "/x"}) == [("a", "machine.image", WARNING)]


def test_machines_that_limit_leaves_out_can_be_accepted() -> None:
    hostvars: dict[str, Any] = {"a": {"__preflight": RESULT}, "b": {}}
    assert (
        preflight_report.judgement(
            arguments("a", accept=["gpu.ecc@b"]), hostvars, {"head": ["a"], "workers": ["b"]}
        ).findings
        == []
    )
    assert (
        preflight_report.judgement(
            arguments("a", accept=["gpu.ecc@c"]), hostvars, {"head": ["a"], "workers": []}
        ).findings
        != []
    )


def test_the_name_under_which_the_role_registers() -> None:
    assert preflight_report.RESULT == "__preflight"


def test_findings_show_their_keys() -> None:
    findings = [
        Finding("a", "x", "y", ERROR, "gpu.ecc"),
        Finding("b", "x", "y", ERROR, "gpu.ecc"),
        Finding("c", "z", ""),
    ]
    assert [(each.where, each.what) for each in preflight_report.shown(findings)] == [
        ("a, b", "x [gpu.ecc]"),
        ("c", "z"),
    ]


def test_report_without_the_machine_that_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_arguments: Any, **_others: Any) -> dict[str, Any]:
        raise AnsibleConnectionFailure("Failed to connect to the host via ssh")

    action = object.__new__(preflight_report.ActionModule)
    monkeypatch.setattr(action, "_execute_module", silent, raising=False)
    hostvars = {"a": {"__preflight": {"unreachable": True, "msg": "Failed to connect to the host via ssh"}}}
    asked = {**arguments("a"), "cluster": "prod", "dest": str(tmp_path), "shared_root": "/private"}
    result = preflight_report.judgement(asked, hostvars, {"head": ["a"], "workers": []})
    files, problems = action._save(asked, result, hostvars["a"])
    assert files == [str(tmp_path / "prod.html"), str(tmp_path / "prod.json")]
    assert "does not answer" in (tmp_path / "prod.json").read_text()
    assert problems == ["The report is not on the shared root: the machine that writes it does not answer"]
