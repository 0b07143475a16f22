from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.filters.staging import (
    result_findings,
    rows,
    staged_findings,
    staged_rows,
    staging_results,
    superfluous_snapshots,
)

NOTHING: dict[str, Any] = {"changed": False, "skipped": True, "results": []}


def results(*found: dict[str, Any]) -> dict[str, Any]:
    return {"results": list(found)}


def test_results_of_all_tasks_have_one_form() -> None:
    model = {"item": {"name": "tiny"}, "name": "tiny", "path": "/private/common/models/tiny", "status": "staged"}
    dataset = {"item": {"name": "sums"}, "name": "sums", "path": "/private/datasets/sums", "status": "exists"}
    snapshot = {"item": {"source": "verl==0.9.1"}, "code_id": "verl-0.9.1", "path": "/srv/x", "status": "exists"}
    user_code = [
        {"item": f"/home/{name}.py", "name": f"{name}.py", "path": f"/private/user/code/{name}.py", "status": status}
        for name, status in (("reward", "staged"), ("tools", "exists"))
    ]
    found = staging_results("/private", results(model), results(dataset), results(snapshot), results(*user_code))
    assert rows(found, ["kind", "name", "status", "path"]) == [
        ["model", "tiny", "staged", "/private/common/models/tiny"],
        ["dataset", "sums", "exists", "/private/datasets/sums"],
        # As nodes see it, not as the machine does.
        ["snapshot", "verl-0.9.1", "exists", "/private/common/code/verl/verl-0.9.1"],
        ["user_code", "reward.py", "staged", "/private/user/code/reward.py"],
        ["user_code", "tools.py", "exists", "/private/user/code/tools.py"],
    ]
    assert [entry["findings"] for entry in found] == [[]] * 5


def test_failures_have_a_finding_and_repairs_have_notes() -> None:
    finding = {"where": "/private/common/models/big", "what": "has 1 MiB free.", "todo": "Make room.", "severity": "e"}
    refused = {"item": {"name": "big"}, "msg": "long", "finding": finding}
    broken = {"item": {"name": "odd"}, "msg": "MODULE FAILURE"}
    item = {"source": "x", "code_id": "mine"}
    repaired = {"item": item, "code_id": "mine", "status": "repaired", "notes": ["a is missing"]}
    found = staging_results("/private", results(refused, broken), NOTHING, results(repaired), NOTHING)
    assert rows(found, ["name", "status", "path"]) == [
        ["big", "refused", "-"],
        ["odd", "refused", "-"],
        ["mine", "repaired", "/private/common/code/verl/mine"],
    ]
    said = [(each["where"], each["what"], each["severity"]) for entry in found for each in entry["findings"]]
    assert said == [
        ("model big", "/private/common/models/big: has 1 MiB free.", "error"),
        ("model odd", "MODULE FAILURE", "error"),
        ("snapshot mine", "a is missing", "warning"),
    ]


def test_nothing_to_stage_is_no_result() -> None:
    assert staging_results("/private", NOTHING, NOTHING, NOTHING, NOTHING) == []


def staged(name: str, at: str | None, *jobs: str, kind: str = "snapshot") -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "path": f"/private/{name}",
        "bytes": 2048,
        "files": 1,
        "staged_at": at,
        "used_by": list(jobs),
        "problems": [],
        "source": "verl==0.9.1",
    }


def test_staged_targets_as_a_table() -> None:
    unknown = {**staged("odd", None, kind="unknown"), "bytes": None, "problems": ["has no manifest.json"]}
    del unknown["source"]
    there = [{**staged("a", "2026-01-01T00:00:00Z", "j1", "j2"), "commit": "abc"}, unknown]
    assert staged_rows(there) == [
        ["snapshot", "a", "2 KiB", "2026-01-01T00:00:00Z", "verl==0.9.1 abc", "j1, j2"],
        ["unknown", "odd", None, None, None, None],
    ]
    (finding,) = staged_findings(there)
    # A user may have put it there by hand.
    assert (finding["where"], finding["what"], finding["severity"]) == ("odd", "has no manifest.json", "warning")
    (finding,) = staged_findings([{**there[0], "kind": "unfinished", "problems": ["was left unfinished"]}])
    assert (finding["where"], finding["what"], finding["severity"]) == ("/private/a", "was left unfinished", "warning")
    (finding,) = staged_findings([{**there[0], "problems": ["x.py is missing"]}])
    assert (finding["where"], finding["what"], finding["severity"]) == ("/private/a", "x.py is missing", "error")


THERE = [
    staged("oldest-but-used", "2020-01-01T00:00:00Z", "j1"),
    staged("older", "2020-01-02T00:00:00Z"),
    staged("old", "2020-01-03T00:00:00Z"),
    staged("newest", "2999-01-01T00:00:00Z"),
    staged("undated", None),
    staged("model", "2020-01-01T00:00:00Z", kind="model"),
]


@pytest.mark.parametrize(
    ("keep", "days", "go"),
    [
        (0, 0, []),
        (1, 0, ["old", "older"]),
        ("2", "0", ["older"]),
        (0, 30, ["old", "older"]),
        ("2", "30", ["older"]),
        (9, 1, []),
    ],
)
def test_which_snapshots_can_be_removed(keep: int | str, days: float | str, go: list[str]) -> None:
    found = superfluous_snapshots(THERE, keep, days)
    assert found["go"] == go
    verdicts = {row[0]: row[3] for row in found["rows"]}
    assert set(verdicts) == {each["name"] for each in THERE} - {"model"}
    assert [name for name, verdict in verdicts.items() if verdict == "to be removed"] == sorted(go, reverse=True)
    assert verdicts["oldest-but-used"] == "used by j1"


def test_declared_snapshots_stay() -> None:
    there = [{**each, "source": f"/src/{each['name'][:3]}"} for each in THERE]
    # By its code id; or the newest of its source.
    declared = [{"source": "x", "code_id": "older"}, {"source": "/src/old"}, {"source": "/src/new", "state": "absent"}]
    assert superfluous_snapshots(there, 0, 1, declared)["go"] == []
    assert superfluous_snapshots(there, 0, 1, declared[:1])["go"] == ["old"]


def test_all_findings_of_an_item_are_shown() -> None:
    findings = [{"where": "/a.py", "what": "is unknown.", "todo": ""}, {"where": "", "what": "x.", "todo": ""}]
    code = {"item": "/a.py", "changed": False, "msg": "x", "finding": findings[0], "findings": findings}
    (found,) = staging_results("/private", NOTHING, NOTHING, NOTHING, results(code))
    assert found["status"] == "refused"
    assert [each["what"] for each in found["findings"]] == ["/a.py: is unknown.", "x."]
    assert {each["where"] for each in found["findings"]} == {"user_code /a.py"}


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
