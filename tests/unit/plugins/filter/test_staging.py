from __future__ import annotations

from ansible_collections.argus.verl.plugins.filter.staging import rows, staging_results

SKIPPED = {"changed": False, "skipped": True}
NO_ITEMS = {"changed": False, "skipped": True, "results": []}


def test_results_of_all_tasks_have_one_form() -> None:
    model = {"kind": "model", "name": "tiny", "path": "/private/common/models/tiny", "status": "staged"}
    snapshots = [{"code_id": "verl-0.9.1", "path": "/srv/verl/common/code/verl/verl-0.9.1", "status": "exists"}]
    user_code = [{"item": "files/reward.py", "changed": True}, {"item": "/home/ann/tools.py", "changed": False}]
    results = staging_results("/private", {"results": [model]}, {"results": snapshots}, {"results": user_code})
    assert rows(results, ["kind", "status", "path"]) == [
        ["model", "staged", "/private/common/models/tiny"],
        ["snapshot", "exists", "/private/common/code/verl/verl-0.9.1"],
        ["user_code", "staged", "/private/user/code/reward.py"],
        ["user_code", "exists", "/private/user/code/tools.py"],
    ]


def test_nothing_to_stage_is_no_result() -> None:
    assert staging_results("/private", SKIPPED, NO_ITEMS, NO_ITEMS) == []
