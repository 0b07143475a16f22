"""A JobSpec with many mistakes, and what a running job keeps from being restarted."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from system import HEAD, NODES, SHARED_ROOT, playbook, said


def test_all_problems_of_a_jobspec_are_reported_at_once(tmp_path: Path) -> None:
    bad = {"workload": "dpo", "code_path": "x", "model": "x", "trainer_override": {}, "submission_id": "A/B"}
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(bad))
    # The head checks it.
    playbook("cluster_up")
    done = playbook("submit", check=False, jobspec=str(tmp_path / "bad.yaml"))
    assert done.returncode != 0
    for piece in ("is 'dpo'", 'mean "trainer_overrides"', "'A/B' is malformed", "dataset"):
        assert piece in said(done.stdout), done.stdout
    assert not list((SHARED_ROOT / "jobs").glob("A*"))


def test_nodes_with_a_running_job_are_not_restarted() -> None:
    """Neither for new settings nor by cluster_down; both report the job."""
    playbook("cluster_up")
    started = started_at()
    job = "from ray.job_submission import JobSubmissionClient as C; import sys; C('http://127.0.0.1:8265').submit_job("
    job += "entrypoint='sleep infinity', submission_id='precious', entrypoint_resources={'worker_node': 1})"
    subprocess.run(["docker", "exec", HEAD, "python3", "-c", job], check=True, capture_output=True)

    refusals: list[tuple[str, dict[str, Any]]] = [
        ("cluster_up", {"ray_node_shm_gib": 3}),
        ("cluster_up", {"rotate_token": True}),
        ("cluster_down", {}),
    ]
    for name, variables in refusals:
        done = playbook(name, check=False, **variables)
        assert done.returncode != 0
        assert "precious" in done.stdout and "allow_disruption" in done.stdout, done.stdout
        assert started_at() == started

    playbook("cluster_up", ray_node_shm_gib=3, allow_disruption=True)
    assert not set(started_at()) & set(started)


def started_at() -> list[str]:
    inspected = ["docker", "inspect", "--format", "{{.Id}} {{.State.StartedAt}}", *NODES]
    return subprocess.run(inspected, text=True, capture_output=True, check=True).stdout.split("\n")[:-1]
