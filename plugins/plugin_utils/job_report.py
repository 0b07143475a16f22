# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: reports on jobs, and the commands for a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.archive.status import ENDED, JobState
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs import report
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo, JobList
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.api import slowness
from ansible_collections.argus.verl.plugins.plugin_utils.commands import playbook_command
from ansible_collections.argus.verl.plugins.plugin_utils.terminal import columns

# The commands for a job: the playbook, and its variables besides the job's id.
COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Status": ("status", {}),
    "Follow": ("logs", {"job_follow": True}),
    "Log": ("logs", {}),
    "Stop": ("stop", {}),
    "Resubmit": ("resubmit", {}),
    "Evidence": ("debug_bundle", {}),
    "Fetch": ("fetch", {}),
    "Export": ("export", {}),
}


def commands(submission_id: str, *names: str, checkpoint: int | None = None) -> list[str]:
    """checkpoint: the step of the job's last complete checkpoint, from which the next job resumes."""
    lines = []
    for name in names:
        playbook, variables = COMMANDS[name]
        if name == "Resubmit" and checkpoint:
            variables = {"resume_from": submission_id}
        command = playbook_command(playbook, {"submission_id": submission_id, **variables})
        lines.append(report.field(name, command))
    return lines


def job_commands(submission_id: str, state: str, checkpoint: int | None = None) -> list[str]:
    """The lines with the commands for a job in a given state; `checkpoint` as for commands."""
    if state in ENDED:
        left = checkpoint if state != JobState.SUCCEEDED else None
        export = ["Export"] if checkpoint else []
        return commands(submission_id, "Status", "Log", "Resubmit", "Fetch", *export, checkpoint=left)
    return commands(submission_id, "Status", "Follow", "Stop", "Evidence", "Fetch")


def job_status(result: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The arguments of argus.verl.report for the result of ray_job_info: one job, or the latest ones."""
    shown = job_or_jobs(result, cluster)
    return {**shown, "text": [*slowness(result.get("slow", 0)), *shown["text"]]}


def job_or_jobs(result: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    if "job" in result:
        job = JobInfo.from_json(result["job"])
        names = ["Log", "Resubmit", "Fetch"] if job.state in ENDED else ["Follow", "Stop", "Fetch"]
        # A job that is running may remove its checkpoints while they are read.
        names += ["Export"] if job.state in ENDED and (job.checkpoints or job.models) else []
        if result.get("registered") is False:
            # As after cluster_down: resubmit would refuse it.
            names = [name for name in names if name != "Resubmit"]
        shown = commands(job.submission_id, *names, checkpoint=job.resumable)
        return report.job_report(job, result["time"], shown, columns()).to_json()
    return report.jobs_report(
        JobList.from_json(result),
        result["time"],
        cluster=cluster,
        status_command=playbook_command("status", {"submission_id": "ID"}),
        submit_command=playbook_command("submit", {"jobspec": "FILE"}),
        columns=columns(),
    ).to_json()
