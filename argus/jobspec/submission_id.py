# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Submission ids: the names of jobs and of their archives."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

SUBMISSION_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def new_submission_id(workload: str) -> str:
    """``<workload>-<UTC time>-<random>``; the random part distinguishes jobs of the same second."""
    return f"{workload}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
