from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.actions import Action, ActionKind
from ansible_collections.argus.verl.plugins.module_utils.cluster.disruption import (
    GOES_ON,
    WHAT_TO_DO,
    disruption_findings,
    job_findings,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.report import ActiveJob, ClusterInfo
from ansible_collections.argus.verl.plugins.plugin_utils.engine_exec import Place, refusal
from samples import planned

IDLE = ClusterInfo(complete=True, missing=[], rows=[], waited=0, problem="", jobs=[])
BUSY = replace(IDLE, jobs=[ActiveJob("grpo-1", "RUNNING"), ActiveJob("sft-2", "PENDING")])


def test_jobs_are_listed_before_they_are_ended() -> None:
    assert job_findings(IDLE, "mvp", "cluster_down") == []
    assert job_findings(BUSY, "mvp", "cluster_down") == [
        Finding("mvp", "cluster_down would end grpo-1 (RUNNING), sft-2 (PENDING)", WHAT_TO_DO)
    ]


def test_jobs_that_wait_are_named_once_beside_those_that_run() -> None:
    second = replace(BUSY, jobs=[ActiveJob("grpo-1~2", "RUNNING")])
    for cluster, listed in ((BUSY, "grpo-1 (RUNNING), sft-2 (PENDING)"), (second, "grpo-1~2 (RUNNING)")):
        (finding,) = job_findings(cluster, "mvp", "cluster_down", ["grpo-1", "ppo-3"])
        assert finding.what == f"cluster_down would end {listed}, ppo-3"
    (finding,) = job_findings(IDLE, "mvp", "cluster_down", ["ppo-3"])
    assert finding.what == "cluster_down would end ppo-3"
    (finding,) = job_findings(replace(IDLE, problem="no answer"), "mvp", "cluster_down", ["ppo-3"])
    assert finding.what == "cluster_down may end jobs, and they cannot be listed: no answer; it would end ppo-3"


def test_jobs_that_cannot_be_listed_may_run() -> None:
    assert job_findings(replace(IDLE, problem="no answer"), "mvp", "cluster_down") == [
        Finding("mvp", "cluster_down may end jobs, and they cannot be listed: no answer", WHAT_TO_DO)
    ]


def test_incomplete_list_of_jobs_is_not_taken_for_complete() -> None:
    (finding,) = job_findings(replace(BUSY, problem="no answer"), "mvp", "cluster_down")
    assert "they cannot be listed: no answer" in finding.what


def test_restart_of_a_running_node_is_a_disruption() -> None:
    plans = {
        "ray-head": planned(),
        "worker-0": planned("recreate", "its settings changed, it is running"),
        "worker-1": planned("create", "no container"),
        # Stopped: nothing runs that it could end.
        "worker-2": planned(action=Action(ActionKind.RECREATE, "its settings changed, it is exited")),
    }
    what = "restarting it (its settings changed, it is running) would end grpo-1 (RUNNING), sft-2 (PENDING)"
    assert disruption_findings(plans, BUSY, allowed=False) == [Finding("worker-0", what, WHAT_TO_DO)]
    assert disruption_findings(plans, BUSY, allowed=True) == [Finding("worker-0", what, WHAT_TO_DO, WARNING)]
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
    assert disruption_findings(plans, dead, False, []) == [done]
    assert disruption_findings(plans, dead, True, []) == [Finding("ray-head", what, WHAT_TO_DO, WARNING)]
    # Not known, still open, or a head that is only slow: its jobs may run.
    assert disruption_findings(plans, dead, False) == [Finding("ray-head", what, WHAT_TO_DO)]
    (refused,) = disruption_findings(plans, dead, False, ["grpo-1"])
    assert (refused.what, refused.severity) == (f"{what}; it would end grpo-1", "error")
    (slow,) = disruption_findings(plans, replace(IDLE, problem="timed out"), False, [])
    assert slow.severity == "error"


def test_open_archives_are_not_asked_for_while_the_head_lists_its_jobs() -> None:
    plans = {"ray-head": planned("recreate", "its settings changed, it is running")}
    assert disruption_findings(plans, IDLE, False, ["grpo-1"]) == []
