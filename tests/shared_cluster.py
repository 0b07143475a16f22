"""The cluster of three containers that all tests of jobs share, and how they submit to it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from system import REPO, SHARED_ROOT, Job, Submit, playbook

from argus.io.hydra import merge_overrides, override_list


@pytest.fixture(scope="session")
def submit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submit]:
    """Submit a JobSpec of inventories/dev with some keys changed, to a cluster that all tests share."""
    jobspecs = tmp_path_factory.mktemp("jobspecs")

    def submit(
        name: str,
        check: bool = True,
        environment: Any = None,
        arguments: Sequence[str] = (),
        form: str = "yaml",
        **changes: Any,
    ) -> Job:
        spec = yaml.safe_load((REPO / "inventories" / "dev" / "jobspecs" / f"{name}.yaml").read_text())
        overrides = override_list(changes.pop("trainer_overrides", {}))
        if "trainer_overrides" in spec:
            spec["trainer_overrides"] = merge_overrides(override_list(spec["trainer_overrides"]), overrides)
        spec.update(changes)
        spec["submission_id"] = f"test-{name}-{time.time_ns()}"
        file = jobspecs / f"{spec['submission_id']}.{form}"
        text = json.dumps(spec, indent=2) if form == "json" else yaml.safe_dump(spec)
        file.write_text(text.replace("<id>", spec["submission_id"]))
        done = playbook("submit", check=check, environment=environment or {}, arguments=arguments, jobspec=str(file))
        return Job(spec["submission_id"], done.stdout)

    SHARED_ROOT.mkdir(parents=True, exist_ok=True)
    # An earlier run may have been interrupted.
    playbook("cluster_down", allow_disruption=True)
    # In one run, as in `make demo`: what one playbook registers is no mistake for the next.
    playbook("cluster_up", "stage", "status")
    try:
        yield submit
    finally:
        playbook("cluster_down", allow_disruption=True)
