"""The items and the versions of the program that jobs use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from argus.archive.archive import Archive
from argus.archive.status import ENDED, JobState
from argus.staging.usage import jobs_by_path, jobs_using, programs_in_use


@pytest.mark.parametrize(
    ("spec", "used"),
    [
        (
            {"code_path": "mine", "model": "Qwen", "dataset": "gsm8k"},
            ["common/code/verl/mine", "common/models/Qwen", "datasets/gsm8k"],
        ),
        # Nodes may see the shared root elsewhere; something in a target counts.
        (
            {"shared_root": "/srv/verl/", "model": "/srv/verl/common/models/Q/step-1"},
            ["common/models/Q", "common/models/Q/step-1"],
        ),
        ({"env_vars": {"RUBRIC": "/private/common/models/rubric.v2/rules.json"}}, ["common/models/rubric.v2"]),
        (
            {"shared_root": "/srv", "trainer_overrides": ["a=['/srv/datasets/a/b.parquet','/srv/datasets/c/d']"]},
            ["datasets/a", "datasets/c"],
        ),
        ({"trainer_overrides": {"model.path": "/elsewhere/common/models/judge"}, "code_path": None}, []),
    ],
)
def test_what_a_job_uses_until_it_has_ended(tmp_path: Path, spec: dict[str, Any], used: list[str]) -> None:
    assert jobs_by_path(tmp_path) == {}
    archive = Archive(tmp_path / "jobs" / "a")
    archive.reserve()
    (tmp_path / "jobs" / "of-nobody").mkdir()
    Archive(tmp_path / "jobs" / "b").reserve()
    Archive(tmp_path / "jobs" / "b").write_text("config/job_spec.json", "{")
    # From its submission on.
    archive.write_json("config/job_spec.json", spec)
    for state in (None, JobState.RUNNING):
        if state:
            archive.set_status(state)
        assert {str(path): jobs for path, jobs in jobs_by_path(tmp_path).items()} == {path: ["a"] for path in used}
    assert jobs_using(tmp_path, tmp_path / "common/models/Q") == (["a"] if "Q/" in str(spec) else [])
    for state in ENDED:
        archive.set_status(state)
        assert jobs_by_path(tmp_path) == {}


def test_versions_of_the_program_that_jobs_need(tmp_path: Path) -> None:
    needed = "argus-0123456789ab.zip"
    others = [("SUCCEEDED", "argus-ffffffffffff.zip"), ("RUNNING", "../../etc/passwd"), ("RUNNING", None)]
    for number, (state, program) in enumerate([("RUNNING", needed), ("QUEUED", needed), *others]):
        config = tmp_path / "jobs" / f"sft-{number}" / "config"
        config.mkdir(parents=True)
        (config.parent / "status.json").write_text(json.dumps({"state": state}))
        (config / "argus.json").write_text(json.dumps({"program": program}))
    assert programs_in_use(tmp_path) == [needed]
