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


def test_files_that_settings_name(root: Path, tmp_path: Path) -> None:
    key, file = "actor_rollout_ref.rollout.multi_turn.tool_config_path", root / "user" / "code" / "tools.yaml"
    assert [one[0] for one in said(root, key, str(file))] == ["error"]
    file.write_text("tools: []")
    assert said(root, key, str(file)) == said(root, key, "relative.yaml") == []
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert "leads out of" in said(root, key, str(file))[0][1]
    assert [one[0] for one in said(root, key, f"{tmp_path}/none.yaml")] == ["error"]
    # What a job writes need not be there, and what it has written is no file of a user.
    assert said(root, "global_profiler.save_path", f"{root}/profile") == []
    assert said(root, key, f"{root}/jobs/grpo-1/tools.yaml") == []


def test_a_chat_template_is_a_text(root: Path) -> None:
    assert len(said(root, "actor_rollout_ref.model.custom_chat_template", f"{root}/user/code/chat.jinja")) == 1
    assert said(root, "actor_rollout_ref.model.custom_chat_template", "{{ messages }}") == []


def test_each_file_of_a_list(root: Path) -> None:
    assert len(said(root, "data.train_files", ["/no/a.parquet", f"{root}/b.parquet", "/no/c.parquet"])) == 2


def test_a_critic_that_the_job_does_not_have(root: Path) -> None:
    assert said(root, "critic.model.path", "/no/model") == []
    assert len(said(root, "critic.model.path", "/no/model", "ppo")) == 1


@pytest.mark.parametrize("key", ["data.train_files", "actor_rollout_ref.model.path"])
def test_the_other_checks_do_not_repeat_it(root: Path, key: str) -> None:
    reported = [where for where, _what, _severity in found(root, settings={key: "/no/where.parquet"})]
    assert reported == [key]
