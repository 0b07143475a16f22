# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people read while a job of Slurm waits."""

from __future__ import annotations

import time

from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.slurm.allocation import Allocation

# A job in one of these never runs.
GONE = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT", "COMPLETING"),
)
REASONS = {
    "Priority": "jobs with a higher priority come first",
    "Resources": "its hosts are in use",
    "BeginTime": "it may not begin yet",
    "PartitionDown": "its partition is down",
    "PartitionTimeLimit": "the partition allows less time: lower slurm_time",
    "PartitionNodeLimit": "the partition allows fewer or more hosts: correct slurm_nodes",
    "AssocGrpGRES": "the account has no GPUs left",
    "QOSMaxGRESPerUser": "you have as many GPUs as the QOS allows",
    "QOSMaxJobsPerUserLimit": "you have as many jobs as the QOS allows",
    "ReqNodeNotAvail": "a host that it needs is drained, down or reserved",
}


def waiting_line(found: Allocation, now: float) -> str:
    """Why a job waits, in Slurm's word and ours, and when it may begin."""
    # Some have details: "ReqNodeNotAvail, UnavailableNodes:gpu-1".
    word = found.reason.split(",")[0].strip()
    meaning = f": {REASONS[word]}" if word in REASONS else ""
    why = f" ({found.reason}{meaning})" if found.reason else ""
    begins = ""
    if found.starts_at and found.starts_at > now:
        begins = f", expected to begin at {time.strftime('%H:%M on %Y-%m-%d', time.localtime(found.starts_at))}"
    return printable(f"Slurm's job {found.job_id} is {found.state}{why}{begins}", lines=False)
