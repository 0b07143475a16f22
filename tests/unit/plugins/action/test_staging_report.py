from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action.staging_report import KINDS, Declared, declared, result_findings

NOTHING: dict[str, Any] = {"changed": False, "skipped": True, "results": []}


def items(*loops: dict[str, Any]) -> list[Declared]:
    """loops: the results for models, datasets, snapshots and code of users."""
    return declared(dict(zip(KINDS, loops, strict=True)))


def results(*found: dict[str, Any]) -> dict[str, Any]:
    return {"results": list(found)}


def test_results_of_all_tasks_have_one_form() -> None:
    model = {"item": {"name": "tiny"}, "name": "tiny", "path": "/private/common/models/tiny", "status": "staged"}
    dataset = {"item": {"name": "sums"}, "name": "sums", "path": "/private/datasets/sums", "status": "exists"}
    snapshot = {"item": {"source": "verl==0.9.1"}, "code_id": "verl-0.9.1", "path": "/private/x", "status": "exists"}
    user_code = [
        {"item": f"/home/{name}.py", "name": f"{name}.py", "path": f"/private/user/code/{name}.py", "status": status}
        for name, status in (("reward", "staged"), ("tools", "exists"))
    ]
    found = items(results(model), results(dataset), results(snapshot), results(*user_code))
    assert found == [
        Declared("model", "tiny", "staged", "/private/common/models/tiny", []),
        Declared("dataset", "sums", "exists", "/private/datasets/sums", []),
        Declared("snapshot", "verl-0.9.1", "exists", "/private/x", []),
        Declared("user_code", "reward.py", "staged", "/private/user/code/reward.py", []),
        Declared("user_code", "tools.py", "exists", "/private/user/code/tools.py", []),
    ]


def test_failures_have_a_finding_and_repairs_have_notes() -> None:
    finding = {"where": "/private/common/models/big", "what": "has 1 MiB free.", "todo": "Make room.", "severity": "e"}
    refused = {"item": {"name": "big"}, "msg": "long", "finding": finding}
    broken = {"item": {"name": "odd"}, "msg": "MODULE FAILURE"}
    item = {"source": "x", "code_id": "mine"}
    repaired = {"item": item, "code_id": "mine", "path": "/x", "status": "repaired", "notes": ["a is missing"]}
    found = items(results(refused, broken), NOTHING, results(repaired), NOTHING)
    assert [(item.name, item.status, item.path) for item in found] == [
        ("big", "refused", "-"),
        ("odd", "refused", "-"),
        ("mine", "repaired", "/x"),
    ]
    said = [(each.where, each.what, each.severity) for item in found for each in item.findings]
    assert said == [
        ("model big", "/private/common/models/big: has 1 MiB free.", "error"),
        ("model odd", "MODULE FAILURE", "error"),
        ("snapshot mine", "a is missing", "warning"),
    ]


def test_nothing_to_stage_is_no_result() -> None:
    assert items(NOTHING, NOTHING, NOTHING, NOTHING) == []


def test_all_findings_of_an_item_are_shown() -> None:
    findings = [{"where": "/a.py", "what": "is unknown.", "todo": ""}, {"where": "", "what": "x.", "todo": ""}]
    code = {"item": "/a.py", "changed": False, "msg": "x", "finding": findings[0], "findings": findings}
    (found,) = items(NOTHING, NOTHING, NOTHING, results(code))
    assert found.status == "refused"
    assert [each.what for each in found.findings] == ["/a.py: is unknown.", "x."]
    assert {each.where for each in found.findings} == {"user_code /a.py"}


@pytest.mark.parametrize(
    ("name", "todo"),
    [("columns.groundtruth", 'did you mean "ground_truth"?'), ("columns.zzz", "Known are: ground_truth, prompt")],
)
def test_unknown_key_of_a_dataset(name: str, todo: str) -> None:
    message = f"Unsupported parameters for (argus.verl.rl_dataset) module: {name}. Supported parameters include: "
    (found,) = result_findings("dataset sums", {"msg": f"{message}ground_truth, prompt."})
    assert (found.where, found.what, found.todo) == ("dataset sums", f"{name} is unknown", todo)
    (found,) = result_findings("dataset sums", {"msg": "boom"})
    assert (found.what, found.todo) == ("boom", "see -vvv")
