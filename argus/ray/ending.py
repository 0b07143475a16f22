# SPDX-License-Identifier: GPL-3.0-or-later
"""When the machines of a cluster are taken away, as at the end of a Slurm allocation. Jobs have to end before."""

from __future__ import annotations

import math
import os
import time

# In the environment of every process of a node, in seconds since the epoch.
STOP_AT = "ARGUS_VERL_STOP_AT"
# The trainer of reinforcement learning saves a checkpoint in its last steps before this time
# (verl/utils/checkpoint/checkpoint_manager.py:should_save_ckpt_esi).
EXPIRATION = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"


def environment(ends_at: float | None, minutes: float) -> dict[str, str]:
    """The environment of nodes whose machines are taken away. minutes: how long before that jobs are stopped."""
    if ends_at is None:
        return {}
    at = f"{ends_at - minutes * 60:.0f}"
    return {STOP_AT: at, EXPIRATION: at}


def stop_at() -> float | None:
    """When jobs on this node are stopped; None if its machine stays."""
    try:
        found = float(os.environ.get(STOP_AT, ""))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def moment(at: float) -> str:
    return time.strftime("%H:%M UTC on %Y-%m-%d", time.gmtime(at))


def problem(now: float) -> str:
    at = stop_at()
    if at is None or now < at:
        return ""
    return f"the cluster's machines are about to be taken away: their jobs are stopped at {moment(at)}"
