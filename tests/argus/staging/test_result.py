"""Results, and what modules return of them."""

from __future__ import annotations

import json

from argus.staging.manifest import Manifest
from argus.staging.result import Staged, Status, difference, module_result


def test_the_difference_has_one_line_for_each_result() -> None:
    results = [
        Staged("model", status, f"/private/{status}", status)
        for status in (Status.EXISTS, Status.STAGED, Status.REPAIRED, Status.REMOVED, Status.ABSENT)
    ]
    assert difference(iter(results)) == {
        "before": "model /private/exists\nmodel /private/repaired\nmodel /private/removed\n",
        "after": "model /private/exists\nmodel /private/staged\nmodel /private/repaired\n",
    }


def test_a_module_returns_plain_data_with_details_of_the_manifest() -> None:
    staged = Staged("model", "tiny", "/private/common/models/tiny", Status.REPAIRED, ("config.json is missing",))
    result = module_result(staged, Manifest({"kind": "model", "commit": "abc"}), ["commit", "rows"])
    assert type(result["status"]) is str
    assert json.loads(json.dumps(result)) == {
        "changed": True,
        "path": "/private/common/models/tiny",
        "status": "repaired",
        "notes": ["config.json is missing"],
        "diff": {"before": "model /private/common/models/tiny\n", "after": "model /private/common/models/tiny\n"},
        "commit": "abc",
    }
    assert "commit" not in module_result(staged, None, ["commit"])
