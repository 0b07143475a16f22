"""One fault at a random moment of a real job's life. CHAOS_COUNT of each; CHAOS_ONLY chooses, CHAOS_SEED repeats."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest
from faults import FAULTS, Fault, problems_after, run_under
from system import SHARED_ROOT, Submit

COUNT = int(os.environ.get("CHAOS_COUNT", "1"))
ONLY = os.environ.get("CHAOS_ONLY", "")
SEED = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 10_000)))
SLOW_ROWS = Path(__file__).parents[1] / "training" / "slow_rows.py"
SETTINGS = {
    **{"trainer.total_epochs": 3, "trainer.save_freq": 4, "trainer.test_freq": -1},
    **{"data.custom_cls.path": f"/private/user/code/{SLOW_ROWS.name}", "data.custom_cls.name": "SlowRows"},
}
CHOSEN = [fault for fault in FAULTS if any(part in fault.name for part in ONLY.split(","))]


@pytest.fixture(autouse=True, scope="module")
def slow_rows(submit: Submit) -> None:
    print(f"CHAOS_SEED={SEED}")
    shutil.copy(SLOW_ROWS, SHARED_ROOT / "user" / "code")


@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("fault", CHOSEN, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_job_survives(submit: Submit, fault: Fault, number: int) -> None:
    chance = random.Random(f"{SEED} {fault.name} {number}")  # noqa: S311
    resources = {"nnodes": fault.nnodes, "gpus_per_node": 1}
    # A step of one rank takes two seconds.
    environment = {"SLOW_ROWS_SECONDS": "0.1"}
    job = submit("sft", resources=resources, retries=2, trainer_overrides=SETTINGS, env_vars=environment)
    run = run_under(fault, job, chance)
    problems = problems_after(fault, job, run)
    assert not problems, f"{run}: {'; '.join(problems)}"
