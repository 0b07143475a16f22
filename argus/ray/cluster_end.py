# SPDX-License-Identifier: Apache-2.0
"""The end of a cluster whose machines are taken away at a known time, as with a Slurm allocation.

Jobs are stopped some minutes before. All times are in seconds since the epoch.
"""

from __future__ import annotations

import math
import os
import time

# The variable with the time at which jobs are stopped, in the environment of every process of a node.
STOP_AT_VARIABLE = "ARGUS_VERL_STOP_AT"
# The variable with the time before which verl's trainer of reinforcement learning saves a checkpoint
# (verl/utils/checkpoint/checkpoint_manager.py:should_save_ckpt_esi).
EXPIRATION_VARIABLE = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"


def ending_environment(ends_at: float | None, minutes: float) -> dict[str, str]:
    """The variables of nodes whose machines are taken away at a time; none if they stay.

    minutes: how long before that time jobs are stopped.
    """
    if ends_at is None:
        return {}
    at = f"{ends_at - minutes * 60:.0f}"
    return {STOP_AT_VARIABLE: at, EXPIRATION_VARIABLE: at}


def read_stop_at() -> float | None:
    """When jobs on this node are stopped, from its environment; None if its machine stays."""
    try:
        moment = float(os.environ.get(STOP_AT_VARIABLE, ""))
    except ValueError:
        return None
    return moment if math.isfinite(moment) else None


def moment_text(at: float) -> str:
    return time.strftime("%H:%M UTC on %Y-%m-%d", time.gmtime(at))


def ending_problem(now: float) -> str:
    """Why jobs on this node are stopped now, or ""."""
    at = read_stop_at()
    if at is None or now < at:
        return ""
    return f"the cluster's machines are about to be taken away: their jobs are stopped at {moment_text(at)}"
