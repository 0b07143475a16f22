from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from argus.jobs.registry import Registered, Registry
from argus.jobs.request import Request, original, resubmission
from argus.jobs.services import OperationError

JOBSPEC = {
    "workload": "grpo",
    "model": "tiny",
    "secrets": ["HF_TOKEN"],
    "env_vars": {"A": 1, "B": 2},
    "trainer_overrides": ["a=x"],
}
ADVICE = "nothing: the original is used; submit a file with submit.yml to use another JobSpec"


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


def warnings(registry: Registry) -> list[str]:
    jobspec, findings = original(registry, "grpo-1")
    assert jobspec == JOBSPEC
    for finding in findings:
        assert (finding.where, finding.todo, finding.severity) == (str(archived(registry)), ADVICE, "warning")
    return [finding.what for finding in findings]


def test_the_request_is_that_of_the_registered_jobspec_without_its_id(registry: Registry) -> None:
    registry.write(Registered("grpo-1", 1.0, {**JOBSPEC, "submission_id": "grpo-1"}, str(registry.path.parent)))
    archive(registry, json.dumps({**JOBSPEC, "model": "other"}))
    changes = [{"submission_id": None}, {"set": ["a=2", "deadline=2h"]}]
    request = resubmission(Request(command_line=changes), "grpo-1", registry)
    assert request.given == {**JOBSPEC, "deadline": "2h", "trainer_overrides": ["a=2"]}
    assert (request.resubmitted_from, [finding.severity for finding in request.warnings]) == ("grpo-1", ["warning"])


@pytest.mark.parametrize("form", [list, lambda overrides: dict(one.split("=") for one in overrides)])
def test_the_checkpoints_of_the_new_job_are_its_own(registry: Registry, form: Callable[[list[str]], Any]) -> None:
    own = f"trainer.default_local_dir={registry.path.parent}/jobs/grpo-1/checkpoints"
    repeating = {**JOBSPEC, "trainer_overrides": form([own, "a=x"])}
    registry.write(Registered("grpo-1", 1.0, repeating, str(registry.path.parent)))
    archive(registry, json.dumps(repeating))
    assert original(registry, "grpo-1") == (JOBSPEC, ())


def test_a_changed_archive_is_named_and_not_used(registry: Registry) -> None:
    """A job asks for the operator's secrets, and for another reward function, in its next life."""
    changed = {
        **JOBSPEC,
        "secrets": ["AWS_SECRET_ACCESS_KEY"],
        "reward_fn_path": "evil.py",
        "env_vars": {"A": 1, "C": 2},
    }
    archive(registry, json.dumps(changed))
    assert warnings(registry) == ["was changed after the submission"]


def test_an_archive_that_was_removed(registry: Registry) -> None:
    archived(registry).unlink()
    assert warnings(registry) == []


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_an_archive_that_is_something_else(registry: Registry, kind: str) -> None:
    file = archived(registry)
    file.unlink()
    if kind == "link":
        file.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        file.mkdir()
    started = time.monotonic()
    (what,) = warnings(registry)
    assert time.monotonic() - started < 20
    assert what.startswith(f"cannot be compared with the original: {file} ")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\0", '{"a": ' * 50_000])
def test_an_archive_that_cannot_be_read(registry: Registry, text: str) -> None:
    archive(registry, text)
    (what,) = warnings(registry)
    assert what.startswith("cannot be compared with the original: ")


def test_a_job_that_is_not_registered(registry: Registry) -> None:
    with pytest.raises(OperationError):
        original(registry, "grpo-2")


def test_a_registry_that_cannot_be_read(registry: Registry) -> None:
    (registry.path / "grpo-1.json").write_text("{")
    with pytest.raises(OperationError, match=f"{registry.path}/grpo-1.json"):
        original(registry, "grpo-1")
