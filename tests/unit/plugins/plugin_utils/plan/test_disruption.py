from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.plugin_utils.plan.departure import (
    GOES_ON,
    REMEDY,
    ActiveJobs,
    disruption_findings,
    job_findings,
    removal_findings,
    rotation_findings,
)
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Place, refusal
from samples import planned

IDLE = ActiveJobs({})
BUSY = ActiveJobs({"grpo-1": "RUNNING", "sft-2": "PENDING"})


def test_jobs_that_wait_are_named_once_beside_those_that_run() -> None:
    assert job_findings(IDLE, "mvp", "cluster_down") == []
    (finding,) = job_findings(BUSY, "mvp", "cluster_down")
    assert (finding.where, finding.severity) == ("mvp", "error")
    second = ActiveJobs({"grpo-1~2": "RUNNING"})
    for cluster, listed in ((BUSY, "grpo-1 (RUNNING), sft-2 (PENDING)"), (second, "grpo-1~2 (RUNNING)")):
        (finding,) = job_findings(replace(cluster, unended=["grpo-1", "ppo-3"]), "mvp", "cluster_down")
        assert finding.problem == f"cluster_down would end {listed}, ppo-3"
    (finding,) = job_findings(replace(IDLE, unended=["ppo-3"]), "mvp", "cluster_down")
    assert finding.problem == "cluster_down would end ppo-3"
    (finding,) = job_findings(ActiveJobs({}, "no answer", ["ppo-3"]), "mvp", "cluster_down")
    assert finding.problem == "cluster_down may end jobs, and they cannot be listed: no answer; it would end ppo-3"


def test_removals_and_rotations() -> None:
    for allowed, severity in ((False, "error"), (True, WARNING)):
        (finding,) = removal_findings(replace(BUSY, unended=["ppo-3"]), "ray-head", allowed=allowed)
        assert (finding.where, finding.severity) == ("ray-head", severity)
        assert finding.problem.endswith("would end grpo-1 (RUNNING), sft-2 (PENDING), ppo-3")
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
    what = "restarting it (its settings changed, it is running) would end grpo-1 (RUNNING), sft-2 (PENDING)"
    assert disruption_findings(plans, BUSY, allowed=False) == [Finding("worker-0", what, REMEDY)]
    assert disruption_findings(plans, BUSY, allowed=True) == [Finding("worker-0", what, REMEDY, WARNING)]
    assert disruption_findings(plans, IDLE, allowed=False) == []


@pytest.mark.parametrize(
    "said",
    [
        "http://127.0.0.1:8265 does not answer: [Errno 111] Connection refused",
        *(
            refusal(Place("ray-head", "gpu-0", "docker"), 1, "", f"Error response from daemon: Container x is {state}")
            for state in ("restarting", "not running")
        ),
    ],
)
def test_head_that_never_started_is_restarted_if_no_archive_is_open(said: str) -> None:
    plans = {"ray-head": planned("recreate", "its settings changed, it is running")}
    dead = replace(IDLE, problem=said)
    reason = "its settings changed, it is running"
    what = f"restarting it ({reason}) may end jobs, and they cannot be listed: {dead.problem}"
    done = Finding("ray-head", f"{what}; all archives are closed", GOES_ON, WARNING)
    assert disruption_findings(plans, dead, allowed=False) == [done]
    assert disruption_findings(plans, dead, allowed=True) == [Finding("ray-head", what, REMEDY, WARNING)]
    # Not known, still open, or a head that is only slow: its jobs may run.
    unknown = replace(dead, unended=None)
    assert disruption_findings(plans, unknown, allowed=False) == [Finding("ray-head", what, REMEDY)]
    (refused,) = disruption_findings(plans, replace(dead, unended=["grpo-1"]), allowed=False)
    assert (refused.problem, refused.severity) == (f"{what}; it would end grpo-1", "error")
    (slow,) = disruption_findings(plans, ActiveJobs({}, "timed out"), allowed=False)
    assert slow.severity == "error"
