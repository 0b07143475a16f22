"""Whether a job fits the time for which the cluster has its machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argus.archive.archive import Archive
from argus.jobs.request import time_limit_findings
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.spec import JobSpec
from argus.ray import departures

NOW = 1_795_350_000.0


def spec_of(root: Path, **keys: Any) -> JobSpec:
    given = {"workload": "sft", "code_path": "verl-0.9.1", "model": "m", "dataset": "d", "shared_root": str(root)}
    found, spec = parse_jobspec({**given, **keys})
    assert spec is not None, found
    return spec


def severities(spec: JobSpec, left: float, step: int = 0) -> list[tuple[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(departures.STOP_AT, str(NOW + left))
        return [(finding.key, finding.severity) for finding in time_limit_findings(spec, step, NOW)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """With a job that has done step 11 of 100, each in 10 seconds."""
    archive = Archive(tmp_path / "jobs" / "first")
    archive.path.parent.mkdir()
    archive.reserve()
    archive.write_heartbeat(
        "heartbeat.json", time=200.0, step=11, total_steps=100, first_step=1, first_step_at=100.0, last_output_at=200.0
    )
    return tmp_path


def test_machines_that_stay_limit_nothing(root: Path) -> None:
    spec = spec_of(root, deadline="1000d", resume_from="first")
    assert list(time_limit_findings(spec, 0, NOW)) == []


def test_a_deadline_that_does_not_fit_is_a_warning(root: Path) -> None:
    spec = spec_of(root, deadline="1h")
    assert severities(spec, 3600) == []
    assert severities(spec, 3599) == [("deadline", "warning")]
    assert severities(spec_of(root), 1) == []


def test_a_job_that_would_be_stopped_at_once_is_refused(root: Path) -> None:
    assert severities(spec_of(root), 0) == [("deadline", "error")]


def test_the_pace_of_the_job_that_it_resumes_from_tells_how_long_it_takes(root: Path) -> None:
    spec = spec_of(root, resume_from="first")
    assert severities(spec, 900, step=10) == []
    assert severities(spec, 899, step=10) == [("resume_from", "warning")]
    assert severities(spec, 1, step=100) == []


def test_a_pace_that_is_not_known_tells_nothing(root: Path) -> None:
    assert severities(spec_of(root, resume_from="other"), 1) == []
    (root / "jobs" / "first" / "heartbeat.json").write_text("[")
    assert severities(spec_of(root, resume_from="first"), 1) == []
