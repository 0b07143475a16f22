# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a job fits the time for which the cluster has its machines, as far as that is known before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from ..archive.archive import Archive
from ..common.findings import WARNING, Finding, about
from ..common.shared_root import archive_path
from ..common.text import duration
from ..io.reading import UnreadableError
from ..jobspec.spec import JobSpec
from ..ray import ending
from .progress import pace, total_steps

LONGER = "ask for the machines for longer, or resume the job later with resume_from"


def time_limit_findings(spec: JobSpec, resumed_step: int, now: float) -> Iterator[Finding]:
    """Warnings about a job that is stopped before it can end. resumed_step: of the checkpoint that it resumes from."""
    stop_at = ending.stop_at()
    if stop_at is None:
        return
    left = stop_at - now
    stopped = f"jobs are stopped at {ending.moment(stop_at)}, before the cluster's machines are taken away"
    if left <= 0:
        yield about("deadline", stopped, "ask for machines again")
        return
    if spec.deadline is not None and spec.deadline > left:
        what = f"{duration(spec.deadline)} do not fit: {stopped}, which is in {duration(left)}"
        yield about("deadline", what, LONGER, WARNING)
    needed = time_of(spec, resumed_step)
    if needed is not None and needed > left:
        what = f"at the pace of {spec.resume_from}, the job needs {duration(needed)}: {stopped}, in {duration(left)}"
        yield about("resume_from", what, LONGER, WARNING)


def time_of(spec: JobSpec, resumed_step: int) -> float | None:
    """The seconds that a job needs at the pace of the one that it resumes from; None if that is not known."""
    if spec.resume_from is None:
        return None
    origin = Archive(archive_path(spec.shared_root, spec.resume_from))
    try:
        heartbeat = origin.heartbeat()
        total, seconds = total_steps(origin, heartbeat), pace(heartbeat)
    except (UnreadableError, OSError):
        return None
    return None if total is None or seconds is None else max(0.0, seconds * (total - resumed_step))
