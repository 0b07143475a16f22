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
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, findings_table, nearest
from ansible_collections.argus.verl.plugins.module_utils.job_state import progress_line
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import ENDED

display = Display()
# Each look costs the head half a second of CPU; people want to see a sign of life within 10.
LOOK_SECONDS = 8.0
# A head may need a minute to come back; a job that nobody can ask about is not followed for ever.
UNANSWERED_LOOKS = 15


def jobspec_directories(inventories: list[str]) -> list[Path]:
    """Where an inventory carries its JobSpecs."""
    paths = [Path(inventory) for inventory in inventories]
    return [(path if path.is_dir() else path.parent) / "jobspecs" for path in paths]


def load_jobspec(name: str, inventories: list[str]) -> tuple[Any, list[Finding]]:
    """The JobSpec of that name, as a path or among an inventory's own; or why there is none."""
    directories = jobspec_directories(inventories)
    places = [Path(name).expanduser(), *(directory / name for directory in directories)]
    found = next((place for place in places if name and place.is_file()), None)
    if found is None:
        known = sorted(path.name for directory in directories for path in directory.glob("*.y*ml"))
        hint = nearest(name, known) or f"the inventory has {', '.join(known) or 'none'}; any other path will do as well"
        return None, [Finding("jobspec", f"there is no file {name!r}" if name else "no file was named", hint)]
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
            findings = self.prepare(arguments, variables)
            if findings:
                return refusal([finding.as_dict() for finding in findings])
        wait = arguments.pop("wait", False) and not self._task.check_mode
        result = self.on_head("argus.verl.ray_job", arguments, variables)
        if result.get("findings"):
            return refusal(result["findings"])
        if wait and not result.get("failed"):
            result |= self.follow(result["submission_id"], arguments["jobspec"], variables)
        return result

    def prepare(self, arguments: dict[str, Any], variables: dict[str, Any]) -> list[Finding]:
        """Put the JobSpec with the cluster's defaults into the arguments; what is wrong with it."""
        if "file" in arguments:
            sources = [str(source) for source in variables.get("ansible_inventory_sources") or []]
            arguments["jobspec"], findings = load_jobspec(arguments.pop("file") or "", sources)
            if findings:
                return findings
        arguments["given"] = arguments.get("jobspec")
        arguments["jobspec"] = jobspec.with_defaults(arguments["given"], arguments.pop("defaults", {}))
        findings, _dummy = jobspec.check(arguments["jobspec"])
        return findings

    def on_head(self, name: str, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run a module; of a head that is not there, say that instead of what its connection says."""
        result: dict[str, Any] = self._execute_module(name, arguments, task_vars=variables)
        said = result.get("module_stderr")
        if said and not result.get("module_stdout") and "Traceback" not in said:
            why = f"The head {variables.get('inventory_hostname')} cannot be reached ({' '.join(said.split())})"
            return {"failed": True, "changed": False, "msg": f"{why}. cluster_up.yml brings the cluster up"}
        return result

    def follow(self, submission_id: str, spec: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Look at the job until it has ended, a line for each look; fail if it did not end well."""
        _dummy, spec = jobspec.check(spec)
        arguments = {
            "submission_id": submission_id,
            "shared_root": spec["shared_root"],
            "address": spec["ray"]["address"],
            "wait_timeout": LOOK_SECONDS,
            "tail": 15,
        }
        unanswered = 0
        while True:
            looked = self.on_head("argus.verl.ray_job_info", arguments, variables)
            if looked.get("failed"):
                return looked
            job = looked["job"]
            # Between its end and its last evidence there is nothing to see.
            if job["ended"] or job["state"] not in ENDED:
                display.display(progress_line(job, time.time()))
            if job["ended"]:
                break
            unanswered = unanswered + 1 if job["problem"] else 0
            if unanswered >= UNANSWERED_LOOKS:
                message = f"{submission_id} is followed no longer, it may still run: {job['problem']}"
                return {"job": job, "state": job["state"], "failed": True, "msg": message}
        result = {"job": job, "state": job["state"]}
        if job["state"] == "SUCCEEDED":
            return result
        log = "\n".join(f"  {line}" for line in job["log"])
        display.display(f"\nThe last lines of its log:\n{log}\nAll of it is in {job['archive']}.")
        fetch = f"fetch.yml -e submission_id={submission_id} brings its archive here"
        return {**result, "failed": True, "msg": f"{submission_id} {job['state']}: {job['reason']}; {fetch}."}


def refusal(findings: list[dict[str, str]]) -> dict[str, Any]:
    """Show what is wrong. Ansible prints a failure's message twice and all of its result: both are short."""
    display.display(f"\n{findings_table(Finding(**finding) for finding in findings)}")
    count = f"{len(findings)} error{'s'[: len(findings) > 1]}, see the table above"
    message = f"The JobSpec was refused, nothing was changed: {count}"
    return {"failed": True, "changed": False, "msg": message}
