# SPDX-License-Identifier: Apache-2.0
"""Renders the HTML page that lists all jobs and links their pages, with the nodes and GPU-hours of the cluster."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..archive.archive import Archive
from ..archive.plan import Plan
from ..archive.status import JobState
from ..cluster.membership import describe_node
from ..common.text import duration, size_text
from ..evidence import hardware
from ..io.reading import UnreadableError
from ..jobs.bundle import PAGE
from ..jobs.info import JobInfo
from ..jobs.job_list_report import OWNER_TAG, SHORT_TREND, job_class, owner_name
from ..jobs.listing import latest_jobs
from ..jobs.report import age_text, number_text, sparkline, steps_text, tags_text, throughput_text
from ..ray.records import ALIVE
from .rendering import Table, cell_text, read_resource, render_template

MAX_JOBS = 300
GPU_HOURS_DAYS = 7
# A number of GPU-hours below this one is shown as 0.0, so its row is left out.
MIN_GPU_HOURS = 0.05
# The columns after the job's id. row_cells gives their contents.
HEADER = (
    *("State", "Workload", "Step", "Metric", "Trend", "Tokens/s", "Left", "GPUs"),
    *("Owner", "Model", "Tags", "Submitted"),
)


@dataclass(frozen=True)
class Row:
    """A job of the list. Without a readable plan or JobSpec, plan and model are empty."""

    info: JobInfo
    plan: Plan
    model: str = ""
    # Whether its archive has a page, which the list links.
    has_page: bool = False
    # The names of the nodes on which it runs now.
    nodes: tuple[str, ...] = ()

    def gpu_hours(self, begin: float, now: float) -> float:
        """The GPU-hours from a moment until the job's end, or until now, with the time between attempts."""
        if not self.info.started_at:
            return 0.0
        return self.plan.gpus * max(0.0, (self.info.ended_at or now) - max(begin, self.info.started_at)) / 3600


def read_rows(jobs: Path) -> list[Row]:
    """The latest jobs of a directory of archives."""
    return [read_row(info, Archive(jobs / info.submission_id)) for info in latest_jobs(jobs, None, MAX_JOBS).jobs]


def read_row(info: JobInfo, archive: Archive) -> Row:
    row = Row(info, Plan(), has_page=(archive.path / PAGE).is_file())
    # Malformed content of an archive leaves a cell empty.
    with contextlib.suppress(UnreadableError, OSError):
        row = replace(row, plan=archive.plan() or Plan(), model=str(archive.read_jobspec().get("model") or ""))
    with contextlib.suppress(UnreadableError, OSError):
        if info.state == JobState.RUNNING and (last := [*hardware.read(archive, hardware.TAIL_BYTES)][-1:]):
            row = replace(row, nodes=tuple(last[0].nodes))
    return row


def render_index(
    rows: Sequence[Row], nodes: Sequence[Mapping[str, Any]], bad: Mapping[str, Any], root: Path, now: float
) -> str:
    """The page with the list of jobs.

    nodes: as Ray's State API lists them. bad: by the names of nodes that several jobs have lost, the ids of these jobs.
    root: the shared root. now: seconds since the epoch.
    """
    return render_template(
        "index.html",
        [read_resource("index.js")],
        "",
        now,
        title="Jobs",
        rows=[(row, row_cells(row, now)) for row in rows],
        header=HEADER,
        page=PAGE,
        tables=[node_table(rows, nodes, bad), gpu_hours_table(rows, nodes, now)],
        space=free_space_text(root),
    )


def row_cells(row: Row, now: float) -> list[tuple[str, Any]]:
    """The text of each column of HEADER, with the value by which the page sorts the column."""
    info, done = row.info, row.info.progress
    state = " ".join(filter(None, (info.state, job_class(info))))
    left = info.time_left
    return [
        (state, state),
        (info.workload, info.workload),
        (steps_text(done), done.step),
        ("" if done.last is None else number_text(done.last), done.last),
        (sparkline(done.trend, SHORT_TREND), ""),
        (throughput_text(done) or "", done.tokens_per_second_per_gpu or done.tokens_per_second),
        ("" if left is None else duration(left), left),
        (str(row.plan.gpus or ""), row.plan.gpus),
        (cell_text(owner_name(info)), owner_name(info)),
        (cell_text(row.model.rpartition("/")[2]), row.model),
        (cell_text(tags_text({name: value for name, value in info.tags.items() if name != OWNER_TAG})), ""),
        (f"{age_text(now - info.submitted_at)} ago", info.submitted_at),
    ]


def node_table(rows: Sequence[Row], nodes: Sequence[Mapping[str, Any]], bad: Mapping[str, Any]) -> Table:
    """The nodes that are alive, with the jobs on them."""
    jobs: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for name in row.nodes:
            jobs[name].append(row.info.submission_id)
    shown = [
        (
            name,
            "draining" if node.get("draining") else str(node.get("state", "")).lower(),
            describe_node(node.get("resources_total") or {}),
            ", ".join(jobs[name]) or None,
            f"lost under {', '.join(map(str, bad[name]))}" if name in bad else None,
        )
        for node in nodes
        if node.get("state") == ALIVE and (name := str(node.get("node_name")))
    ]
    return Table("Nodes", ("Node", "State", "Resources", "Jobs", "Problem"), sorted(shown, key=lambda row: row[0]))


def gpu_hours_table(rows: Sequence[Row], nodes: Sequence[Mapping[str, Any]], now: float) -> Table:
    """The GPU-hours of the last days, by owner and outcome of jobs; and those in which no job had the GPUs.

    A GPU counts from the start of its node.
    """
    begin = now - GPU_HOURS_DAYS * 86400
    spent: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        outcome = row.info.failure.kind if row.info.failure else str(row.info.state)
        spent[owner_name(row.info) or "-", outcome] += row.gpu_hours(begin, now)
    gpus = [
        (max(begin, node.get("start_time_ms", 0) / 1000), float((node.get("resources_total") or {}).get("GPU", 0)))
        for node in nodes
        if node.get("state") == ALIVE
    ]
    first = min((start for start, _count in gpus), default=now)
    lines = [
        (name, outcome, round(hours, 1)) for (name, outcome), hours in sorted(spent.items()) if hours >= MIN_GPU_HOURS
    ]
    idle = sum(count * (now - start) / 3600 for start, count in gpus) - sum(row.gpu_hours(first, now) for row in rows)
    lines += [("-", "idle", round(idle, 1))] if idle >= MIN_GPU_HOURS else []
    return Table(f"GPU-hours of the last {GPU_HOURS_DAYS} days", ("Owner", "Outcome", "GPU-hours"), lines)


def free_space_text(root: Path) -> str:
    """How much of the shared root's file system is free; "" if that cannot be found out."""
    with contextlib.suppress(OSError):
        status = os.statvfs(root)
        if status.f_blocks:
            free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
            return f"{size_text(free)} of {size_text(total)} free on the shared root"
    return ""
