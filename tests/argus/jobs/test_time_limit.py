"""Whether a job fits the time for which the cluster has its machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def severities(spec: JobSpec, left: float) -> list[tuple[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(departures.STOP_AT, str(NOW + left))
        return [(finding.key, finding.severity) for finding in time_limit_findings(spec, NOW)]


def test_a_deadline_that_does_not_fit_is_a_warning(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, deadline="1h")
    assert severities(spec, 3600) == []
    assert severities(spec, 3599) == [("deadline", "warning")]
    assert severities(spec_of(tmp_path), 1) == []


def test_a_job_that_would_be_stopped_at_once_is_refused(tmp_path: Path) -> None:
    assert severities(spec_of(tmp_path), 0) == [("deadline", "error")]
