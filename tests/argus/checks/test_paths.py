from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checked_job import found, request

from argus.checks.common import Facts
from argus.checks.paths import path_findings


def said(root: Path, key: str, value: Any, workload: str = "grpo") -> list[tuple[str, str, str]]:
    findings = path_findings(request(root, workload, {key: value}), Facts())
    assert {finding.key for finding in findings} <= {key}
    return [(finding.severity, finding.what, finding.todo) for finding in findings]


@pytest.mark.parametrize(
    ("key", "home"),
    [
        ("data.train_files", "datasets"),
        ("data.val_files", "datasets"),
        ("actor_rollout_ref.model.path", "common/models"),
        ("trainer.resume_from_path", "jobs"),
        ("data.custom_cls.path", "user/code"),
    ],
)
def test_paths_outside_the_shared_root(root: Path, tmp_path: Path, key: str, home: str) -> None:
    todo = f"copy it to {home} there, or stage it with stage.yml"
    what = f"{tmp_path}/x is outside the shared root {root}"
    assert said(root, key, f"{tmp_path}/x") == [("error", what, todo)]
    (tmp_path / "x").mkdir()
    here = f"{what}: this worker has it, but others may not have the same"
    assert said(root, key, f"{tmp_path}/x") == [("warning", here, todo)]
    assert said(root, key, f"{root}/x") == []
    assert said(root, key, "org/name") == []
    assert said(root, key, None) == []


def test_each_file_of_a_list(root: Path) -> None:
    assert len(said(root, "data.train_files", ["/no/a.parquet", f"{root}/b.parquet", "/no/c.parquet"])) == 2


def test_a_critic_that_the_job_does_not_have(root: Path) -> None:
    assert said(root, "critic.model.path", "/no/model") == []
    assert len(said(root, "critic.model.path", "/no/model", "ppo")) == 1


@pytest.mark.parametrize("key", ["data.train_files", "actor_rollout_ref.model.path"])
def test_the_other_checks_do_not_repeat_it(root: Path, key: str) -> None:
    reported = [where for where, _what, _severity in found(root, settings={key: "/no/where.parquet"})]
    assert reported == [key]
