from __future__ import annotations

import pytest

from argus.staging.manifest import Manifest, Staged, Status, as_json


@pytest.mark.parametrize(
    ("status", "changed", "before", "after"),
    [
        (Status.STAGED, True, False, True),
        (Status.EXISTS, False, True, True),
        (Status.REPAIRED, True, True, True),
        (Status.REMOVED, True, True, False),
        (Status.ABSENT, False, False, False),
    ],
)
def test_a_result_as_json(status: Status, changed: bool, before: bool, after: bool) -> None:
    staged = Staged("model", "tiny", "/private/common/models/tiny", status, ("a is missing",))
    line = "model /private/common/models/tiny\n"
    assert as_json(staged, Manifest({"commit": "0", "secret": "x"})) == {
        "name": "tiny",
        "changed": changed,
        "path": staged.path,
        "status": status.value,
        "notes": ["a is missing"],
        "diff": [{"before": line if before else "", "after": line if after else ""}],
        "commit": "0",
    }
    assert "commit" not in as_json(staged, None)
