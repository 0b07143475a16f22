# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All checks by key. Apart from the topics, so that machines get only what they read."""

from __future__ import annotations

from . import all_reduce, reachability, storage_trial
from .checks import CLOCK, REACHABLE, Check
from .machine import MACHINE_CHECKS
from .topics import TOPICS

# Checks that need several machines at once: playbooks make them, and hand in findings with these keys.
PLAY_CHECKS: tuple[Check, ...] = (reachability.PORTS, *storage_trial.CHECKS, *all_reduce.CHECKS)


def all_checks() -> dict[str, Check]:
    """Every check by its key."""
    own = [check for topic in TOPICS for check in (topic.answers, *topic.checks)]
    # The basic answer knows more of nvidia-smi than that it is late: its check stands for both.
    return {check.key: check for check in (REACHABLE, CLOCK, *own, *MACHINE_CHECKS, *PLAY_CHECKS)}
