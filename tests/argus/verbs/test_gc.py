"""argus gc: which versions of the program jobs need."""

from __future__ import annotations

import json
from pathlib import Path

from argus.staging.store import programs


def test_versions_of_jobs_that_have_not_ended_are_needed(tmp_path: Path) -> None:
    for number, (state, program) in enumerate(
        [
            ("RUNNING", "argus-0123456789ab.zip"),
            ("QUEUED", "argus-0123456789ab.zip"),
            ("SUCCEEDED", "argus-ffffffffffff.zip"),
            ("RUNNING", "../../etc/passwd"),
            ("RUNNING", None),
        ]
    ):
        config = tmp_path / "jobs" / f"sft-{number}" / "config"
        config.mkdir(parents=True)
        (config.parent / "status.json").write_text(json.dumps({"state": state}))
        (config / "argus.json").write_text(json.dumps({"program": program}))
    assert programs(tmp_path) == ["argus-0123456789ab.zip"]
