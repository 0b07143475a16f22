"""Faults at random moments of real jobs' lives; CHAOS_ONLY chooses, CHAOS_SEED repeats.

One fault a job, CHAOS_COUNT of each; and CHAOS_KILLS of each of those that a job of weeks meets, under one long job.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from archive_files import metrics_of
from faults import (
    FAULTS,
    FUSE,
    OFTEN,
    RETRIED,
    Fault,
    all_alive,
    hang_shared_root,
    has_step,
    left_by,
    lost_steps,
    noticed_after,
    problems_after,
    run_between_steps,
    run_under,
)
from system import SHARED_ROOT, Submit, forget_losses, playbook, until

COUNT = int(os.environ.get("CHAOS_COUNT", "1"))
KILLS = int(os.environ.get("CHAOS_KILLS", "2"))
ONLY = os.environ.get("CHAOS_ONLY", "")
SEED = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 10_000)))
SLOW_ROWS = Path(__file__).parents[1] / "training" / "slow_rows.py"
SETTINGS = {
    **{"trainer.total_epochs": 3, "trainer.save_freq": 4, "trainer.test_freq": -1},
    **{"data.custom_cls.path": f"/private/user/code/{SLOW_ROWS.name}", "data.custom_cls.name": "SlowRows"},
}
SIZE = {"nnodes": 1, "gpus_per_node": 1}
# A step of one rank takes two seconds.
ENVIRONMENT = {"SLOW_ROWS_SECONDS": "0.1"}
POSSIBLE = [fault for fault in FAULTS if shutil.which(FUSE) or fault.make is not hang_shared_root]
CHOSEN = [fault for fault in POSSIBLE if any(part in fault.name for part in ONLY.split(","))]


@pytest.fixture(autouse=True, scope="module")
def slow_rows(submit: Submit) -> None:
    print(f"CHAOS_SEED={SEED}")
    shutil.copy(SLOW_ROWS, SHARED_ROOT / "user" / "code")


@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("fault", CHOSEN, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_job_survives(submit: Submit, fault: Fault, number: int) -> None:
    forget_losses()
    chance = random.Random(f"{SEED} {fault.name} {number}")  # noqa: S311
    resources = {"nnodes": fault.nnodes, "gpus_per_node": 1}
    job = submit("sft", resources=resources, retries=2, trainer_overrides=SETTINGS, env_vars=ENVIRONMENT)
    run = run_under(fault, job, chance)
    problems = problems_after(fault, job, run)
    assert not problems, f"{run}: {'; '.join(problems)}"


@pytest.mark.parametrize("fault", [fault for fault in CHOSEN if fault in OFTEN], ids=lambda fault: fault.name)
def test_grpo_survives(submit: Submit, fault: Fault) -> None:
    forget_losses()
    fault = replace(fault, begins=has_step)
    settings = {"trainer.total_training_steps": 8, "trainer.save_freq": 2}
    job = submit("grpo", resources=SIZE, retries=2, trainer_overrides=settings)
    run = run_under(fault, job, random.Random(f"{SEED} grpo {fault.name}"))  # noqa: S311
    problems = problems_after(fault, job, run)
    assert not problems, f"{run}: {'; '.join(problems)}"


def test_a_long_job_survives_many(submit: Submit) -> None:
    chance = random.Random(f"{SEED} long")  # noqa: S311
    faults = [fault for fault in CHOSEN if fault in OFTEN] * KILLS
    chance.shuffle(faults)
    retries = sum(fault.outcome == RETRIED for fault in faults)
    endless = {**SETTINGS, "trainer.total_epochs": 100_000}
    job = submit("sft", resources=SIZE, retries=retries, trainer_overrides=endless, env_vars=ENVIRONMENT)
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
        run.noticed = noticed_after(fault, job, run.began, before=end)
    steps = [line["step"] for line in metrics_of(job.archive)]
    assert steps == list(range(1, len(steps) + 1))
    assert left_by(job) == []
