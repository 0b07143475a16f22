# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_job` on the controller: find the JobSpec, check what needs no cluster, follow the job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils import jobspec
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, findings_table
from ansible_collections.argus.verl.plugins.module_utils.job_state import progress_line

display = Display()
# Each look costs the head half a second of CPU; people want to see a sign of life within 10.
LOOK_SECONDS = 8.0


def find_jobspec(name: str, inventories: list[str]) -> Path | list[Path]:
    """The JobSpec's file, or the places where it was looked for."""
    places = [Path(name).expanduser()]
    places += [
        (Path(inventory) if Path(inventory).is_dir() else Path(inventory).parent) / "jobspecs" / name
        for inventory in inventories
    ]
    return next((place for place in places if place.is_file()), places)


def load_jobspec(name: str, inventories: list[str]) -> tuple[Any, list[Finding]]:
    found = find_jobspec(name, inventories)
    if isinstance(found, list):
        tried = ", ".join(map(str, found))
        return None, [Finding("jobspec", f"{name!r} is not there", f"looked for {tried}")]
    try:
        return yaml.safe_load(found.read_text(encoding="utf-8")), []
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return None, [Finding(str(found), " ".join(str(error).split()), "mend the file")]


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        if arguments.get("state", "submitted") == "submitted":
            refusal = self.check(arguments, variables)
            if refusal:
                return refusal
        wait = arguments.pop("wait", False) and not self._task.check_mode
        result: dict[str, Any] = self._execute_module("argus.verl.ray_job", arguments, task_vars=variables)
        if wait and not result.get("failed"):
            root = (arguments.get("jobspec") or {}).get("shared_root") or "/private"
            result |= self.follow(result["submission_id"], root, variables)
        return result

    def check(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any] | None:
        """Put the JobSpec into the arguments; the failure if it is not one."""
        findings: list[Finding] = []
        if arguments.get("file"):
            sources = variables.get("ansible_inventory_sources") or []
            arguments["jobspec"], findings = load_jobspec(arguments.pop("file"), [str(source) for source in sources])
        if not findings:
            findings, _ = jobspec.check(arguments.get("jobspec"))
        if not findings:
            return None
        return {
            "failed": True,
            "changed": False,
            "msg": f"The JobSpec was refused, nothing was changed.\n{findings_table(findings)}",
        }

    def follow(self, submission_id: str, shared_root: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Look at the job until it has ended, a line for each look; fail if it did not end well."""
        arguments = {
            "submission_id": submission_id,
            "shared_root": shared_root,
            "wait_timeout": LOOK_SECONDS,
            "tail": 15,
        }
        while True:
            looked = self._execute_module("argus.verl.ray_job_info", arguments, task_vars=variables)
            if looked.get("failed"):
                return dict(looked)
            job = looked["job"]
            display.display(progress_line(job, time.time()))
            if job["ended"]:
                break
        if job["state"] == "SUCCEEDED":
            return {"job": job, "state": job["state"]}
        log = "\n".join(f"  {line}" for line in job["log"])
        return {
            "job": job,
            "state": job["state"],
            "failed": True,
            "msg": f"{submission_id} ended {job['state']}: {job['reason']}\nThe last lines of its log:\n{log}\n"
            f"All of it is in {job['archive']}; fetch.yml -e submission_id={submission_id} brings it here.",
        }
