"""One job at a time uses verl's TransferQueue."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.launcher.attempts import other_transfer_queue


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    return made


def other(archive: Archive, submission_id: str, **plan: Any) -> Archive:
    made = Archive(archive.path.with_name(submission_id))
    made.reserve()
    made.write_json("config/plan.json", plan)
    return made


WAIT_FOR_GRPO = "job grpo-1 is active, and verl's TransferQueue serves one ppo or grpo job per cluster"


@pytest.mark.parametrize(
    ("status", "identifier", "answer"),
    [
        ("RUNNING", "grpo-1", WAIT_FOR_GRPO),
        ("PENDING", "grpo-1", WAIT_FOR_GRPO),
        # A further attempt of it.
        ("RUNNING", "grpo-1~3", WAIT_FOR_GRPO),
        ("FAILED", "grpo-1", ""),
        ("RUNNING", "sft-2", ""),
        # Its own record, of an attempt that is still listed.
        ("RUNNING", "sft-1", ""),
        # A job that another tool has submitted.
        ("RUNNING", "raysubmit_x", ""),
    ],
)
def test_only_one_job_at_a_time_uses_the_transfer_queue(
    archive: Archive, status: str, identifier: str, answer: str
) -> None:
    archive.write_json("config/plan.json", {"transfer_queue": True})
    other(archive, "grpo-1", transfer_queue=True)
    other(archive, "sft-2", transfer_queue=False)
    assert other_transfer_queue(archive, [{"submission_id": identifier, "status": status}]) == answer
    assert other_transfer_queue(archive, []) == ""


@pytest.mark.parametrize(
    ("state", "age", "answer"),
    [
        # It waits for its lost node, and Ray does not list it meanwhile.
        ("RETRYING", 0, WAIT_FOR_GRPO),
        ("ENDING", 0, WAIT_FOR_GRPO),
        ("QUEUED", 0, ""),
        ("SUCCEEDED", 0, ""),
        # Its steward is gone with its head.
        ("RETRYING", 1000, ""),
    ],
)
def test_a_job_between_two_attempts_keeps_the_transfer_queue(
    archive: Archive, state: str, age: float, answer: str
) -> None:
    neighbour = other(archive, "grpo-1", transfer_queue=True)
    neighbour.set_status(state)
    neighbour.write_heartbeat("keeper.json", time=time.time() - age)
    assert other_transfer_queue(archive, []) == answer
