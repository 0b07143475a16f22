"""Asking Slurm for hosts, with programs in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action import slurm_job
from ansible_collections.argus.verl.plugins.action.slurm_job import waiting_line
from ansible_collections.argus.verl.plugins.plugin_utils import action
from ansible_collections.argus.verl.plugins.plugin_utils.slurm import commands
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.allocation import Allocation

WISH = {"python": "/opt/verl/bin/python3", "nodes": "2", "gpus": 8, "cpus": "", "head": [], "setup": None}
WAITS = Allocation(7, "argus-verl", "PENDING", "Resources")
RunAction = Callable[..., dict[str, Any]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(slurm_job.display, "display", lines.append)
    monkeypatch.setattr(slurm_job.display, "warning", lines.append)
    monkeypatch.setattr(slurm_job.time, "sleep", lambda seconds: None)
    return lines


@pytest.fixture
def run_action(monkeypatch: pytest.MonkeyPatch, shown: list[str]) -> RunAction:
    """Runs the action. job_id: that of the job that exists. states: its states in Slurm, one after the other."""

    def run(
        job_id: int | None, states: list[Allocation | None], check: bool = False, **arguments: Any
    ) -> dict[str, Any]:
        monkeypatch.setattr(action.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
        answers: Iterator[Allocation | None] = iter(states)
        done: list[str] = []
        monkeypatch.setattr(commands, "find_job_id", lambda name: job_id)
        monkeypatch.setattr(commands, "submit", lambda text: done.append(text) or 7)
        monkeypatch.setattr(commands, "cancel", lambda job: done.append(f"cancel {job}"))
        monkeypatch.setattr(commands, "query_allocation", lambda job: next(answers))
        task_args = {"name": "argus-verl", "wish": WISH, **arguments}
        task = type("Task", (), {"check_mode": check, "args": task_args, "async_val": 0, "delegate_to": None})()
        job = slurm_job.ActionModule(task, None, None, None, None, None)
        return {**job.run(task_vars={}), "done": done}

    return run


def test_a_job_is_submitted_and_waited_for(run_action: RunAction, shown: list[str]) -> None:
    running = replace(WAITS, state="RUNNING", reason="")
    result = run_action(None, [WAITS, WAITS, replace(WAITS, reason="Priority"), running])
    assert (result["changed"], result["job_id"], result.get("failed")) == (True, 7, None)
    assert "--gpus-per-node=8\n" in result["done"][0] and "--exclusive\n" in result["done"][0]
    # The job, a warning, and each reason once.
    assert len(shown) == 4 and "Resources" in shown[2] and "Priority" in shown[3]
    later = replace(WAITS, starts_at=9.0, reason="ReqNodeNotAvail")
    assert ["expected" in waiting_line(later, now) for now in (8.0, 9.0)] == [True, False]
    # A job that ends before it runs is a failure; this run did not submit it, and cancels nothing.
    for state, message in ((replace(WAITS, state="CANCELLED", reason=""), "CANCELLED"), (None, "not known")):
        result = run_action(9, [state])
        assert result["failed"] and message in result["msg"] and result["done"] == []


def test_check_mode_shows_the_script(run_action: RunAction) -> None:
    result = run_action(None, [], check=True)
    assert (result["changed"], result["done"], result["diff"]["after"]) == (True, [], result["script"])
    assert result["script"].startswith("#!/bin/bash\n#SBATCH --job-name=argus-verl\n")
    assert "script" not in run_action(9, [], check=True)
    # A wish with errors submits nothing.
    result = run_action(None, [], wish={**WISH, "time": 43200, "gpus": "many"})
    assert result["failed"] and result["done"] == []
    assert "slurm_gpus" in result["msg"] and "slurm_time" not in result["msg"]


def test_a_job_that_waits_too_long_is_cancelled(run_action: RunAction, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 11.0])
    monkeypatch.setattr(slurm_job.time, "monotonic", lambda: next(clock))
    result = run_action(None, [WAITS, WAITS], wait_timeout=10.0)
    assert result["failed"] and "Resources" in result["msg"] and result["done"][-1] == "cancel 7"


def test_a_job_is_ended(run_action: RunAction) -> None:
    assert run_action(7, [], state="absent")["done"] == ["cancel 7"]
    assert run_action(7, [], check=True, state="absent") == {"changed": True, "job_id": 7, "done": []}
    assert run_action(None, [], state="absent") == {"changed": False, "job_id": 0, "done": []}
