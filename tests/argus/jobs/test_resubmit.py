from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from argus.jobs.registry import Registered, Registry
from argus.jobs.request import JobRequest, original, resubmission

JOBSPEC = {
    "workload": "grpo",
    "model": "tiny",
    "secrets": ["HF_TOKEN"],
    "env_vars": {"A": 1, "B": 2},
    "trainer_overrides": ["a=x"],
}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """A registry with one job, and its archive."""
    made = Registry(tmp_path / "registry")
    made.path.mkdir()
    made.write(Registered("grpo-1", 1.0, JOBSPEC, str(tmp_path)))
    (tmp_path / "jobs" / "grpo-1" / "config").mkdir(parents=True)
    archive(made, json.dumps(JOBSPEC))
    return made


def archived(registry: Registry) -> Path:
    return registry.path.parent / "jobs" / "grpo-1" / "config" / "job_spec.json"


def archive(registry: Registry, text: str) -> None:
    archived(registry).write_text(text)


def test_the_request_is_that_of_the_registered_jobspec_without_its_id(registry: Registry) -> None:
    registry.write(Registered("grpo-1", 1.0, {**JOBSPEC, "submission_id": "grpo-1"}, str(registry.path.parent)))
    archive(registry, json.dumps({**JOBSPEC, "model": "other"}))
    changes = [{"submission_id": None}, {"set": ["a=2", "deadline=2h"]}]
    request = resubmission(JobRequest(command_line=changes), "grpo-1", registry)
    assert request.author_jobspec == {**JOBSPEC, "deadline": "2h", "trainer_overrides": ["a=2"]}
    assert request.resubmitted_from == "grpo-1"


@pytest.mark.parametrize("form", [list, lambda overrides: dict(one.split("=") for one in overrides)])
def test_the_checkpoints_of_the_new_job_are_its_own(registry: Registry, form: Callable[[list[str]], Any]) -> None:
    own = f"trainer.default_local_dir={registry.path.parent}/jobs/grpo-1/checkpoints"
    repeating = {**JOBSPEC, "trainer_overrides": form([own, "a=x"])}
    registry.write(Registered("grpo-1", 1.0, repeating, str(registry.path.parent)))
    archive(registry, json.dumps(repeating))
    assert original(registry, "grpo-1") == JOBSPEC
