"""One of the faults that `make chaos` makes, chosen by chance."""

from __future__ import annotations

import os
import random
import time

import pytest
from faults import EVERYWHERE, Fault, job_for, survive
from system import Submit

SEED = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 10_000)))


@pytest.mark.parametrize("fault", random.Random(SEED).sample(EVERYWHERE, 1), ids=lambda fault: fault.name)  # noqa: S311
def test_a_job_survives(submit: Submit, fault: Fault) -> None:
    print(f"CHAOS_SEED={SEED}")
    survive(fault, job_for(submit, fault), random.Random(f"{SEED} {fault.name}"))  # noqa: S311
