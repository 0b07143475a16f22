# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep a job that waits from being started, or let it go on."""

from __future__ import annotations

from pathlib import Path

from ..common.shared_root import JOBS
from ..launcher import queue
from ..launcher.reading import UnreadableError
from ..launcher.status import WAITING
from .listing import UnknownJobError, find_job
from .services import Answer, OperationError, Services


def hold(shared_root: str, submission_id: str, services: Services, held: bool, check_mode: bool = False) -> Answer:
    """Hold a job or release it. Raises OperationError for a job that does not wait, or that is not of this head."""
    try:
        archive = find_job(Path(shared_root) / JOBS, submission_id, harms=True)
        submission_id = archive.submission_id
        state, known = archive.read_status().state, services.registry.read(submission_id)
    except (UnknownJobError, UnreadableError) as error:
        raise OperationError(str(error)) from error
    if known is None:
        raise OperationError(f"{submission_id} is not registered on this head; use the inventory of its cluster")
    if state not in WAITING:
        raise OperationError(f"{submission_id} is {state or 'UNKNOWN'}: only a job that waits can be held or released")
    changed = queue.is_held(services.registry.path, submission_id) is not held
    if changed and not check_mode:
        queue.hold(services.registry.path, submission_id, held)
    own = {"submission_id": submission_id, "archive": str(archive.path), "state": str(state)}
    return Answer(changed, {**own, "diff": {"before": f"{text(held is not changed)}\n", "after": f"{text(held)}\n"}})


def text(held: bool) -> str:
    return "held" if held else "in line"
