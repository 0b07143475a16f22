# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: jobs as people read them, and what they can do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import ENDED
from ansible_collections.argus.verl.plugins.module_utils.status import report
from ansible_collections.argus.verl.plugins.plugin_utils.commands import playbook_command

# What can be done with a job: the playbook, and what it is told beside the job's id.
COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Status": ("status", {}),
    "Follow": ("logs", {"job_follow": True}),
    "Log": ("logs", {}),
    "Stop": ("stop", {}),
    "Resubmit": ("resubmit", {}),
    "Evidence": ("debug_bundle", {}),
    "Fetch": ("fetch", {}),
}


def commands(submission_id: str, *names: str) -> list[str]:
    lines = []
    for name in names:
        playbook, variables = COMMANDS[name]
        command = playbook_command(playbook, {"submission_id": submission_id, **variables})
        lines.append(report.field(name, command))
    return lines


def job_commands(submission_id: str, state: str) -> list[str]:
    """The lines that say how a job is watched and operated."""
    if state in ENDED:
        return commands(submission_id, "Status", "Resubmit", "Fetch")
    return commands(submission_id, "Status", "Follow", "Stop", "Evidence", "Fetch")


def job_status(looked: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The arguments of argus.verl.report for what ray_job_info returned: one job, or the last ones."""
    if "job" in looked:
        job = looked["job"]
        names = ("Log", "Resubmit", "Fetch") if job["state"] in ENDED else ("Follow", "Stop", "Fetch")
        return report.job_report(looked, commands(job["submission_id"], *names))
    one = playbook_command("status", {"submission_id": "ID"})
    submit = playbook_command("submit", {"jobspec": "FILE"})
    return report.jobs_report(looked, {"cluster": cluster, "one": one, "submit": submit})


def evidence_rows(collected: Mapping[str, Any], head: str) -> list[list[Any]]:
    """What job_evidence returned, of the head alone or of several nodes: asked, files, nodes, what could not be had."""
    rows = []
    for asked in collected.get("results", [{**collected, "item": head}]):
        missing = "; ".join(asked.get("problems") or [asked.get("msg", "")])
        rows.append([asked["item"], asked.get("files", 0), ", ".join(asked.get("nodes", [])) or None, missing or None])
    return rows


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"evidence_rows": evidence_rows, "job_commands": job_commands, "job_status": job_status}
