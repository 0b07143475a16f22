"""Which jobs use what is staged."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from argus.archive.archive import Archive
from argus.archive.status import ENDED, JobState
from argus.staging.store import used_by, users


def job(root: Path, name: str, state: str = JobState.RUNNING, **spec: object) -> Archive:
    """The archive of a job, as its submission makes it."""
    archive = Archive(root / "jobs" / name)
    archive.reserve()
    archive.write_json("config/job_spec.json", {"workload": "grpo", **spec})
    archive.set_status(state)
    return archive


def test_a_job_uses_its_code_its_model_and_its_dataset(tmp_path: Path) -> None:
    job(tmp_path, "a", code_path="verl-0.9.1", model="Qwen2.5-0.5B", dataset="gsm8k")
    job(tmp_path, "b", code_path="mine", model="Qwen2.5-0.5B", dataset="sft")
    assert used_by(tmp_path) == {
        PurePosixPath("common/code/verl/verl-0.9.1"): ["a"],
        PurePosixPath("common/code/verl/mine"): ["b"],
        PurePosixPath("common/models/Qwen2.5-0.5B"): ["a", "b"],
        PurePosixPath("datasets/gsm8k"): ["a"],
        PurePosixPath("datasets/sft"): ["b"],
    }
    assert users(tmp_path, tmp_path / "common" / "models" / "Qwen2.5-0.5B") == ["a", "b"]
    assert users(tmp_path, tmp_path / "datasets" / "gsm8k") == ["a"]
    # Another one, whose name begins with this one's.
    assert users(tmp_path, tmp_path / "datasets" / "gsm") == []


@pytest.mark.parametrize("nodes", ["/private", "/srv/verl", "/srv/verl/"])
def test_nodes_may_see_the_shared_root_elsewhere(tmp_path: Path, nodes: str) -> None:
    """Absolute paths of a JobSpec are the nodes'."""
    job(tmp_path, "a", shared_root=nodes, code_path=f"{nodes}/common/code/verl/mine", dataset="gsm8k")
    assert users(tmp_path, tmp_path / "common" / "code" / "verl" / "mine") == ["a"]
    assert users(tmp_path, tmp_path / "datasets" / "gsm8k") == ["a"]


def test_using_a_part_of_a_target_counts_as_using_it(tmp_path: Path) -> None:
    job(tmp_path, "a", model="/private/common/models/Qwen/checkpoint-1")
    assert users(tmp_path, tmp_path / "common" / "models" / "Qwen") == ["a"]


def test_paths_in_overrides_and_variables_are_used_too(tmp_path: Path) -> None:
    """A reward model, and a job that trains on two datasets."""
    overrides = [
        "reward_model.model.path=/srv/verl/common/models/judge",
        "data.train_files=['/srv/verl/datasets/gsm8k/train.parquet','/srv/verl/datasets/math/train.parquet']",
    ]
    env_vars = {"RUBRIC": "/srv/verl/common/models/rubric.v2/rules.json"}
    job(tmp_path, "a", shared_root="/srv/verl", dataset="gsm8k", trainer_overrides=overrides, env_vars=env_vars)
    job(tmp_path, "b", trainer_overrides={"model.path": "/elsewhere/common/models/judge"})
    assert {str(path): jobs for path, jobs in used_by(tmp_path).items()} == {
        "common/models/judge": ["a"],
        "common/models/rubric.v2": ["a"],
        "datasets/gsm8k": ["a"],
        "datasets/math": ["a"],
    }
    assert users(tmp_path, tmp_path / "common" / "models" / "rubric.v2") == ["a"]


@pytest.mark.parametrize("state", ENDED)
def test_a_job_that_has_ended_uses_nothing(tmp_path: Path, state: str) -> None:
    archive = job(tmp_path, "a", JobState.RUNNING, code_path="mine")
    archive.set_status(state)
    assert used_by(tmp_path) == {}


def test_a_job_uses_its_inputs_during_its_submission(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "jobs" / "a")
    archive.reserve()
    assert used_by(tmp_path) == {}
    archive.write_json("config/job_spec.json", {"code_path": "mine"})
    assert users(tmp_path, tmp_path / "common" / "code" / "verl" / "mine") == ["a"]


def test_where_there_are_no_jobs_nothing_is_used(tmp_path: Path) -> None:
    assert used_by(tmp_path) == {}
    job(tmp_path, "a").write_text("config/job_spec.json", "{")
    job(tmp_path, "b", code_path=None)
    (tmp_path / "jobs" / "of-nobody").mkdir()
    assert used_by(tmp_path) == {}
