from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argus.jobs.registry import RegisteredJob, Registry
from argus.jobs.request import JobRequest, resubmission

JOBSPEC = {"workload": "grpo", "model": "tiny", "secrets": ["HF_TOKEN"], "env_vars": {"A": 1, "B": 2}}


@pytest.mark.parametrize("form", [list, lambda overrides: dict(one.split("=") for one in overrides)])
def test_the_request_is_that_of_the_registered_jobspec(tmp_path: Path, form: Any) -> None:
    """It has neither the id nor the directory of checkpoints, because the new job has its own."""
    registry = Registry(tmp_path / "registry")
    registry.path.mkdir()
    override = f"trainer.default_local_dir={tmp_path}/jobs/grpo-1/checkpoints"
    spec = {**JOBSPEC, "submission_id": "grpo-1", "trainer_overrides": form([override, "a=x"])}
    registry.write(RegisteredJob("grpo-1", 1.0, spec, str(tmp_path)))
    changes = [{"submission_id": None}, {"set": ["a=2", "deadline=2h"]}]
    request = resubmission(JobRequest(command_line=changes), "grpo-1", registry)
    assert request.author_jobspec == {**JOBSPEC, "deadline": "2h", "trainer_overrides": ["a=2"]}
    assert request.resubmitted_from == "grpo-1"
