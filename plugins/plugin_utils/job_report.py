# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.module_utils.argus.archive.status import ENDED, JobState
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs import report
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo, JobList
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.api import slowness
from ansible_collections.argus.verl.plugins.plugin_utils.playbook_command import playbook_command
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import table_width

# The commands for a job: the playbook, and its variables besides the job's id.
COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Status": ("status", {}),
    "Follow": ("logs", {"job_wait": True}),
    "Log": ("logs", {}),
    "Stop": ("stop", {}),
    "Resubmit": ("resubmit", {}),
    "Evidence": ("debug_bundle", {}),
    "Fetch": ("fetch", {}),
    "Export": ("export", {}),
}


def command_lines(submission_id: str, *names: str, checkpoint: int | None = None) -> list[str]:
    """checkpoint: the step of the job's last complete checkpoint, from which the next job resumes."""
    lines = []
    for name in names:
        playbook, variables = COMMANDS[name]
        if name == "Resubmit" and checkpoint:
            variables = {"set": f"resume_from={submission_id}"}
        command = playbook_command(playbook, {"submission_id": submission_id, **variables})
        lines.append(report.field(name, command))
    return lines


def job_commands(submission_id: str, state: str, checkpoint: int | None = None) -> list[str]:
    """The lines with the commands for a job in a given state; `checkpoint` as for commands."""
    if state in ENDED:
        resumable = checkpoint if state != JobState.SUCCEEDED else None
        export = ["Export"] if checkpoint else []
        return command_lines(submission_id, "Status", "Log", "Resubmit", "Fetch", *export, checkpoint=resumable)
    return command_lines(submission_id, "Status", "Follow", "Stop", "Evidence", "Fetch")


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
        shown = command_lines(job.submission_id, *names, checkpoint=job.resumable)
        return report.job_report(job, result["time"], shown, table_width()).to_json()
    return report.jobs_report(
        JobList.from_json(result),
        result["time"],
        cluster=cluster,
        status_command=playbook_command("status", {"submission_id": "ID"}),
        submit_command=playbook_command("submit", {"jobspec": "FILE"}),
        columns=table_width(),
    ).to_json()


NO_JOB = "No job was named. Pass -e submission_id=ID; status.yml lists the latest jobs"


def unknown_id(submission_id: object) -> str:
    """The message for an id that cannot be one; an empty id means that none was given."""
    shown = printable(repr(submission_id))
    return f"{shown} is not a submission id; status.yml lists the latest jobs" if submission_id else NO_JOB


def unreachable_text(error: AnsibleConnectionFailure, node: str) -> str:
    """The message for a node to which no connection was made. The connection's own has what to do."""
    return f"{node} cannot be reached: {one_line(error)}"
