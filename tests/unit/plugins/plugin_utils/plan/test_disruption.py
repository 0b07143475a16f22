from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.plugin_utils.node_command import ContainerLocation, engine_error
from ansible_collections.argus.verl.plugins.plugin_utils.plan.disruption import (
    DISRUPTION_REMEDY,
    NO_REMEDY_NEEDED,
    ActiveJobs,
    disruption_findings,
    job_findings,
    removal_findings,
    rotation_findings,
)
from samples import planned

IDLE = ActiveJobs({})
BUSY = ActiveJobs({"grpo-1": "RUNNING", "sft-2": "PENDING"})


def test_jobs_that_wait_are_named_once_beside_those_that_run() -> None:
    assert job_findings(IDLE, "mvp", "cluster_down") == []
    for jobs, unended, listed in (
        (BUSY, [], "grpo-1 (RUNNING), sft-2 (PENDING)"),
        (BUSY, ["grpo-1", "ppo-3"], "grpo-1 (RUNNING), sft-2 (PENDING), ppo-3"),
        (ActiveJobs({"grpo-1~2": "RUNNING"}), ["grpo-1", "ppo-3"], "grpo-1~2 (RUNNING), ppo-3"),
        (IDLE, ["ppo-3"], "ppo-3"),
        (replace(IDLE, problem="no answer"), ["ppo-3"], "ppo-3"),
    ):
        (finding,) = job_findings(replace(jobs, unended=unended), "mvp", "cluster_down")
        assert (finding.where, finding.severity) == ("mvp", "error")
        assert finding.problem.endswith(f" would end {listed}") and jobs.problem in finding.problem


def test_removals_and_rotations() -> None:
    for allowed, severity in ((False, "error"), (True, WARNING)):
        (finding,) = removal_findings(BUSY, "ray-head", allowed=allowed)
        assert (finding.where, finding.severity) == ("ray-head", severity)
        assert removal_findings(IDLE, "ray-head", allowed=allowed) == []
    # A token is rotated on all nodes at once.
    (finding,) = rotation_findings(["ray-head"], ["ray-head", "worker-0"])
    assert (finding.where, finding.severity) == ("worker-0", "error")
    assert rotation_findings(["ray-head"], ["ray-head"]) == []


def test_restart_of_a_running_node_is_a_disruption() -> None:
    plans = {
        "ray-head": planned(),
        "worker-0": planned("recreate", "its settings changed, it is running"),
        "worker-1": planned("create", "no container"),
        # Stopped: nothing runs that it could end.
        "worker-2": planned("recreate", "its settings changed, it is exited", disrupts=False),
    }
    problem = "restarting it (its settings changed, it is running) would end grpo-1 (RUNNING), sft-2 (PENDING)"
    assert disruption_findings(plans, BUSY, allowed=False) == [Finding("worker-0", problem, DISRUPTION_REMEDY)]
    assert disruption_findings(plans, BUSY, allowed=True) == [Finding("worker-0", problem, DISRUPTION_REMEDY, WARNING)]
    assert disruption_findings(plans, IDLE, allowed=False) == []


HEAD = ContainerLocation("ray-head", "gpu-0", "docker")
IS_RESTARTING = engine_error(HEAD, 1, "", "Error response from daemon: Container x is restarting")


@pytest.mark.parametrize("said", ["[Errno 111] Connection refused", IS_RESTARTING])
def test_head_that_never_started_is_restarted_if_no_archive_is_open(said: str) -> None:
    plans = {"ray-head": planned("recreate", "its settings changed, it is running")}

    def severity(jobs: ActiveJobs, allowed: bool = False) -> tuple[str, bool]:
        (finding,) = disruption_findings(plans, jobs, allowed=allowed)
        return finding.severity, finding.remedy == NO_REMEDY_NEEDED

    dead = replace(IDLE, problem=said)
    assert (severity(dead), severity(dead, allowed=True)) == ((WARNING, True), (WARNING, False))
    # Not known, still open, or a head that is only slow: its jobs may run.
    for jobs in (replace(dead, unended=None), replace(dead, unended=["grpo-1"]), ActiveJobs({}, "timed out")):
        assert severity(jobs) == ("error", False)
