"""JobSpecs, clusters and jobs that unit tests share."""

from __future__ import annotations

from typing import Any

import pytest

from argus.common.findings import Finding
from argus.jobspec.capacity import Cluster
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.plan import Job, plan_job
from argus.jobspec.spec import JobSpec
from argus.jobspec.verl_releases import Profile

MINIMAL = {"workload": "grpo", "code_path": "verl-0.9.1", "model": "tiny-qwen2", "dataset": "gsm8k_tiny"}
CPU = Cluster(accelerator="cpu", workers=2, gpus_per_node=4, cpus_per_node=48)
CUDA = Cluster(accelerator="cuda", workers=4, gpus_per_node=8, cpus_per_node=128)
RELEASES = [(0, 8, 0), (0, 9, 0), (0, 9, 1)]
PROFILES = [Profile(".".join(map(str, release)), release) for release in RELEASES]
NEWEST = PROFILES[-1]
# In place of a value: the key is left out.
MISSING = "left out"


def jobspec(**changes: Any) -> JobSpec:
    """The smallest JobSpec with some changes; it has no findings."""
    findings, spec = parse_jobspec({**MINIMAL, **changes})
    assert findings == []
    assert spec is not None
    return spec


def findings_of(changes: dict[Any, Any]) -> list[Finding]:
    """The findings of the smallest JobSpec with some changes."""
    jobspec = {key: value for key, value in {**MINIMAL, **changes}.items() if value != MISSING}
    return parse_jobspec(jobspec)[0]


def planned(cluster: Cluster = CPU, profile: Profile = NEWEST, **changes: Any) -> Job:
    """The job for such a JobSpec."""
    return plan_job(jobspec(**changes), cluster, "verl-0.9.1", "job-1", profile)


def settings(job: Job) -> dict[str, str]:
    """The overrides of a job by their keys."""
    values = dict(override.lstrip("+").partition("=")[::2] for override in job.plan.overrides)
    assert len(values) == len(job.plan.overrides), "a key appears twice"
    return values


def parse_override(override: str) -> Any:
    """An override as Hydra parses it."""
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    return parser.OverridesParser.create().parse_override(override)
