"""Faults at random moments of real jobs' lives; CHAOS_ONLY chooses, CHAOS_SEED repeats.

One fault a job, CHAOS_COUNT of each; and CHAOS_KILLS of each of those that a job of weeks meets, under one long job.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import replace

import pytest
from archive_files import metrics_of
from faults import (
    EVERYWHERE,
    FAULTS,
    FUSE,
    OFTEN,
    RETRIED,
    Fault,
    all_alive,
    grpo,
    has_step,
    job_for,
    kill_steward,
    left_by,
    lost_steps,
    noticed_after,
    run_between_steps,
    sft,
    survive,
)
from system import Submit, playbook, until

COUNT = int(os.environ.get("CHAOS_COUNT", "1"))
KILLS = int(os.environ.get("CHAOS_KILLS", "2"))
ONLY = os.environ.get("CHAOS_ONLY", "")
SEED = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 10_000)))
POSSIBLE = FAULTS if shutil.which(FUSE) else EVERYWHERE
CHOSEN = [fault for fault in POSSIBLE if any(part in fault.name for part in ONLY.split(","))]


@pytest.fixture(autouse=True, scope="module")
def seed() -> None:
    print(f"CHAOS_SEED={SEED}")


@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("fault", CHOSEN, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_job_survives(submit: Submit, fault: Fault, number: int) -> None:
    survive(fault, job_for(submit, fault), random.Random(f"{SEED} {fault.name} {number}"))  # noqa: S311


@pytest.mark.parametrize("fault", [fault for fault in CHOSEN if fault in OFTEN], ids=lambda fault: fault.name)
def test_grpo_survives(submit: Submit, fault: Fault) -> None:
    survive(replace(fault, begins=has_step), grpo(submit), random.Random(f"{SEED} grpo {fault.name}"))  # noqa: S311


def test_a_long_job_survives_many(submit: Submit) -> None:
    chance = random.Random(f"{SEED} long")  # noqa: S311
    faults = [fault for fault in CHOSEN if fault in OFTEN] * KILLS
    chance.shuffle(faults)
    retries = sum(fault.outcome == RETRIED for fault in faults)
    job = sft(submit, retries=retries, **{"trainer.total_epochs": 100_000})
    runs = []
    for number, fault in enumerate(faults, 1):
        runs.append(run_between_steps(fault, job, chance))
        print(f"{number} of {len(faults)}: {runs[-1]}", flush=True)
    until(all_alive, "the head is back after the last fault")
    playbook("stop", submission_id=job.submission_id)
    attempts = job.wait("STOPPED")["attempts"]
    # No step is lost where only the head, or a part of it, ended: nothing else has ended an attempt.
    assert [attempt["kind"] for attempt in attempts] == ["node_lost"] * retries + ["stopped"]
    lost = iter(lost_steps(job))
    ends = [run.began for run in runs[1:]] + [time.time()]
    for fault, run, end in zip(faults, runs, ends, strict=True):
        run.attempts = ("node_lost",) if fault.outcome == RETRIED else ()
        run.lost_steps = next(lost) if fault.outcome == RETRIED else 0
        # The end of a steward has no event.
        run.noticed = None if fault.make is kill_steward else noticed_after(fault, job, run.began, before=end)
    steps = [line["step"] for line in metrics_of(job.archive)]
    assert steps == list(range(1, len(steps) + 1))
    assert left_by(job) == []
