from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeRay

from argus.archive.archive import Archive
from argus.archive.program import VERSION, Program
from argus.hooks import redact
from argus.io.schema import json_text
from argus.jobs.registry import Registry
from argus.jobs.submit import Submission, send
from argus.jobspec.capacity import Cluster
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.plan import Job, plan_job
from argus.jobspec.verl_releases import Profile

CLUSTER = Cluster("cpu", 2, 4, 48)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shared = tmp_path / "private"
    (shared / "jobs").mkdir(parents=True)
    return shared


def given(root: Path, **changes: Any) -> dict[str, Any]:
    asked = {
        "workload": "grpo",
        "code_path": "verl-0.9.1",
        "model": "tiny",
        "dataset": "gsm8k",
        "reward_fn_path": "r.py:digit_share",
        "shared_root": str(root),
    }
    return asked | changes


def planned(asked: dict[str, Any]) -> Job:
    findings, spec = parse_jobspec(asked)
    assert findings == []
    return plan_job(spec, CLUSTER, "verl-0.9.1", "grpo-1", Profile("0.9.1", (0, 9, 1)))


def sent(archive: Archive, asked: dict[str, Any], ray: FakeRay, **details: Any) -> str:
    return send(archive, Submission(asked, planned(asked), **details), ray, registry_of(archive))


def registry_of(archive: Archive) -> Registry:
    registry = Registry(archive.path.parents[2] / "registry")
    registry.path.mkdir(exist_ok=True)
    return registry


def unreachable() -> None:
    raise ConnectionError("the head does not answer")


@pytest.fixture
def archive(root: Path) -> Archive:
    return Archive(root / "jobs" / "grpo-1")


def test_the_archive_is_complete(root: Path, archive: Archive) -> None:
    asked = given(root, trainer_overrides={"trainer": {"save_freq": 5}})
    job = planned(asked)
    sent(archive, asked, FakeRay(), resolved="trainer:\n  save_freq: 5\n")
    files = sorted(str(path.relative_to(archive.path)) for path in archive.path.rglob("*") if path.is_file())
    config = ("argus.json", "job_spec.json", "plan.json", "resolved.yaml", "runtime_env.json")
    config += ("submit_cmd.txt", "train_cmd.txt")
    assert files == [*(f"config/{name}" for name in config), "events.jsonl", "status.json", "steward.json"]
    assert {path.name for path in archive.path.iterdir() if path.is_dir()} == {"checkpoints", "config", "debug", "logs"}
    assert archive.read_mapping("config/job_spec.json") == asked
    assert archive.read_mapping("config/runtime_env.json") == job.runtime_env
    assert archive.read_mapping("config/plan.json") == json.loads(json_text(job.plan))
    assert (archive.path / "config" / "submit_cmd.txt").read_text() == job.submit_command()
    assert (archive.path / "config" / "resolved.yaml").read_text() == "trainer:\n  save_freq: 5\n"
    record = archive.read_mapping("config/argus.json")
    assert record == {"version": VERSION, "program": Program.of_this_process().name}


def test_a_submission_whose_answer_was_lost(root: Path, archive: Archive) -> None:
    ray = FakeRay({"grpo-1": "PENDING"}, on_submit=unreachable)
    assert sent(archive, given(root), ray) == "SUBMITTED"
    assert archive.read_status().state == "SUBMITTED"


def test_what_cannot_be_registered_is_closed(root: Path, archive: Archive) -> None:
    """The steward does not know it."""
    ray, asked = FakeRay(), given(root)
    registry = registry_of(archive)
    registry.path.rmdir()
    with pytest.raises(FileNotFoundError):
        send(archive, Submission(asked, planned(asked)), ray, registry)
    assert archive.read_status().state == "FAILED"
    assert archive.read_status().closed_at
    assert ray.calls == []


def test_a_submission_that_is_interrupted_is_found_by_the_head(
    root: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its secrets would remain for ever: from the moment they are stored, the job is known to need a steward."""
    before: list[bool] = []

    def stored(_archive: Path, _values: object) -> None:
        before.append(archive.needs_steward() and not archive.has_steward())
        before.append(registry_of(archive).ids() == ["grpo-1"])

    monkeypatch.setattr(redact, "store", stored)
    sent(archive, given(root), FakeRay(), secrets={"HF_TOKEN": "hf_secret"})
    assert before == [True, True]


@pytest.mark.parametrize(
    ("logger", "exists"), [("[console,wandb]", True), ("[tracking]", True), ("[console,file]", False)]
)
def test_wandb_gets_its_directory(root: Path, archive: Archive, logger: str, exists: bool) -> None:
    """It would write into a temporary directory of the container instead."""
    sent(archive, given(root, trainer_overrides=[f"trainer.logger={logger}", "trainer.project_name=wandb"]), FakeRay())
    assert (archive.path / "logs/wandb").is_dir() is exists
