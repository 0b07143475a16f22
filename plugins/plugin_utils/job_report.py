# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports on jobs, each with the commands for it that a user may run next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.archive.status import ENDED, JobState
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs import report
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo, JobList
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.api import slowness
from ansible_collections.argus.verl.plugins.plugin_utils.playbook_command import playbook_command
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import table_width

NO_ID_MESSAGE = "No job was named. Pass -e submission_id=ID; status.yml lists the latest jobs"
# The commands for a job, by their titles: the playbook, and its variables besides the job's id.
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


def command_lines(submission_id: str, *titles: str, checkpoint: int | None = None) -> list[str]:
    """The lines with the commands of these titles.

    checkpoint: the step of the job's last complete checkpoint, from which a job that is resubmitted resumes; None if
    there is none.
    """
    lines = []
    for title in titles:
        playbook, variables = COMMANDS[title]
        if title == "Resubmit" and checkpoint:
            variables = {"set": f"resume_from={submission_id}"}
        command = playbook_command(playbook, {"submission_id": submission_id, **variables})
        lines.append(report.field(title, command))
    return lines


def job_commands(submission_id: str, state: str, checkpoint: int | None = None) -> list[str]:
    """The lines with the commands for a job in this state. checkpoint: as for command_lines."""
    if state in ENDED:
        resumable = checkpoint if state != JobState.SUCCEEDED else None
        export = ["Export"] if checkpoint else []
        return command_lines(submission_id, "Status", "Log", "Resubmit", "Fetch", *export, checkpoint=resumable)
    return command_lines(submission_id, "Status", "Follow", "Stop", "Evidence", "Fetch")


def status_report(result: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The arguments of print_report() for the result of ray_job_info: one job, or the latest ones."""
    shown = job_or_list_report(result, cluster)
    return {**shown, "text": [*slowness(result.get("slow", 0)), *shown["text"]]}


def job_or_list_report(result: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    if "job" in result:
        job = JobInfo.from_json(result["job"])
        titles = ["Log", "Resubmit", "Fetch"] if job.state in ENDED else ["Follow", "Stop", "Fetch"]
        # A job that runs may remove its checkpoints while they are read.
        titles += ["Export"] if job.state in ENDED and (job.checkpoints or job.models) else []
        if result.get("registered") is False:
            # The cluster does not know the job, as after cluster_down.yml, and resubmit would refuse it.
            titles = [title for title in titles if title != "Resubmit"]
        shown = command_lines(job.submission_id, *titles, checkpoint=job.resumable)
        return report.job_report(job, result["time"], shown, table_width()).to_json()
    return report.jobs_report(
        JobList.from_json(result),
        result["time"],
        cluster=cluster,
        status_command=playbook_command("status", {"submission_id": "ID"}),
        submit_command=playbook_command("submit", {"jobspec": "FILE"}),
        columns=table_width(),
    ).to_json()


def invalid_id_message(submission_id: object) -> str:
    """The message for a text that is no submission id; an empty one means that none was given."""
    shown = printable(repr(submission_id))
    return f"{shown} is not a submission id; status.yml lists the latest jobs" if submission_id else NO_ID_MESSAGE
