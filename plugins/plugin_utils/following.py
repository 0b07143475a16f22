# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What following a job and following its log have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.status.report import SILENT_SECONDS
from ansible_collections.argus.verl.plugins.plugin_utils.commands import playbook_command

# A head may need a minute to come back; a job that nobody can ask about is not followed for ever.
UNANSWERED_SECONDS = 120.0
NO_JOB = "No job was named. Say -e submission_id=ID; status.yml lists the last ones"


def announcement(submission_id: str) -> str:
    """Said before following begins: an ansible-playbook that is interrupted says nothing any more."""
    again = playbook_command("logs", {"submission_id": submission_id, "job_follow": True})
    return f"Following {submission_id}. Ctrl-C ends the following, not the job; to follow it again:\n  {again}"


def gives_no_sign(job: Mapping[str, Any]) -> bool:
    """Whether neither the head nor the job's launcher says anything."""
    silent = job["silent_for"]
    return bool(job["problem"]) and (silent is None or silent > SILENT_SECONDS)


def given_up(submission_id: str, problem: str) -> str:
    """The message with which following ends before the job does."""
    status = playbook_command("status", {"submission_id": submission_id})
    return f"{submission_id} is followed no longer, it may still run: {problem}. Later: {status}"


def node_is_gone(result: Mapping[str, Any], node: str) -> str:
    """What to say when a module's result is that its node is not there, instead of what the connection says."""
    said = result.get("module_stderr", "")
    # A module that was killed with its container says nothing at all.
    if result.get("module_stdout") != "" or "Traceback" in said:
        return ""
    told = " ".join(said.split()) or f"exit code {result.get('rc')}"
    return f"{node} cannot be reached ({told})"
