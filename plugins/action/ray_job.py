# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_job` on the controller: find the JobSpec, check what needs no cluster, follow the job."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.job.options import with_defaults
from ansible_collections.argus.verl.plugins.module_utils.job.parse import examinable, parse_jobspec
from ansible_collections.argus.verl.plugins.module_utils.job.spec_checks import secret_value_findings
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import ENDED, SUCCEEDED
from ansible_collections.argus.verl.plugins.module_utils.status.info import JobInfo
from ansible_collections.argus.verl.plugins.module_utils.status.progress import progress_line
from ansible_collections.argus.verl.plugins.module_utils.status.report import failure_lines, log_lines
from ansible_collections.argus.verl.plugins.module_utils.text import nearest
from ansible_collections.argus.verl.plugins.plugin_utils.commands import playbook_command
from ansible_collections.argus.verl.plugins.plugin_utils.following import (
    NO_JOB,
    UNANSWERED_SECONDS,
    announcement,
    given_up,
    is_unreachable,
    node_is_gone,
)

display = Display()
# Each look costs the head half a second of CPU; people want to see a sign of life within 10.
LOOK_SECONDS = 6.0


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
        if arguments.get("state", "submitted") == "stopped":
            if not arguments.get("submission_id"):
                return {"failed": True, "changed": False, "msg": NO_JOB}
        else:
            if "resubmitted_from" in arguments:
                problem = self.take_archived(arguments, variables)
                if problem:
                    return problem
            findings = self.prepare(arguments, variables)
            if findings and "findings" not in arguments:
                return refusal([finding.as_dict() for finding in findings])
        wait = arguments.pop("wait", False) and not self._task.check_mode
        result = self.on_head("argus.verl.ray_job", arguments, variables)
        warnings = result.pop("findings", [])
        if result.get("failed") and (warnings or arguments.get("findings")):
            # What a head that does not answer would have found as well stays open.
            return refusal(warnings or arguments["findings"])
        if warnings:
            display.display(f"\n{findings_table(Finding(**finding) for finding in warnings)}")
        if wait and not result.get("failed"):
            followed = self.follow(result["submission_id"], arguments["jobspec"], variables)
            if followed.get("failed"):
                # Ansible prints all of a failure's result, and the overrides alone fill a screen.
                result = {key: result[key] for key in ("changed", "submission_id", "archive", "state")}
            result |= followed
        result.pop("head_is_gone", None)
        return result

    def take_archived(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any] | None:
        """Put the JobSpec of an earlier job into the arguments, without its id; the failure if there is none."""
        earlier = {
            "submission_id": arguments["resubmitted_from"],
            "shared_root": arguments.get("defaults", {}).get("shared_root", "/private"),
            "address": "",
        }
        if not earlier["submission_id"]:
            return {"failed": True, "changed": False, "msg": NO_JOB}
        looked = self.on_head("argus.verl.ray_job_info", earlier, variables)
        if looked.get("failed"):
            return looked
        job = looked["job"]
        if not job["jobspec"]:
            return {"failed": True, "changed": False, "msg": f"{job['archive']}/config/job_spec.json cannot be read"}
        arguments["jobspec"] = {key: value for key, value in job["jobspec"].items() if key != "submission_id"}
        return None

    def prepare(self, arguments: dict[str, Any], variables: dict[str, Any]) -> list[Finding]:
        """Put the JobSpec with the cluster's defaults into the arguments; what is wrong with it."""
        if "file" in arguments:
            sources = [str(source) for source in variables.get("ansible_inventory_sources") or []]
            arguments["jobspec"], findings = load_jobspec(arguments.pop("file") or "", sources)
            if findings:
                return findings
        origin = arguments.pop("resume_from", "")
        if origin and isinstance(arguments.get("jobspec"), dict):
            arguments["jobspec"] = {**arguments["jobspec"], "resume_from": origin}
        arguments["given"] = arguments.get("jobspec")
        arguments["jobspec"] = with_defaults(arguments["given"], arguments.pop("defaults", {}))
        findings, spec = parse_jobspec(arguments["jobspec"])
        names = spec.secrets if spec else ()
        values = {name: os.environ[name] for name in names if name in os.environ} | arguments.pop("secret_values", {})
        # Those of other jobs stay here.
        arguments["secret_values"] = {name: values[name] for name in names if name in values}
        findings += secret_value_findings(names, arguments["secret_values"])
        if findings:
            rest = examinable(findings, arguments["jobspec"])
            if rest:
                # The head looks at the rest, so that all is said at once.
                arguments["jobspec"], arguments["findings"] = rest, [finding.as_dict() for finding in findings]
        return findings

    def on_head(self, name: str, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run a module; of a head that is not there, say that instead of what its connection says."""
        result: dict[str, Any] = self._execute_module(name, arguments, task_vars=variables)
        gone = node_is_gone(result, f"The head {variables.get('inventory_hostname')}")
        if gone:
            message = f"{gone}. cluster_up.yml brings the cluster up"
            return {"failed": True, "changed": False, "head_is_gone": True, "msg": message}
        return result

    def follow(self, submission_id: str, spec: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Look at the job until it has ended, a line for each look; fail if it did not end well."""
        _dummy, checked = parse_jobspec(spec)
        arguments = {
            "submission_id": submission_id,
            **({"shared_root": checked.shared_root, "address": checked.address} if checked else {}),
            "wait_timeout": LOOK_SECONDS,
            "tail": 15,
        }
        display.display(f"\n{announcement(submission_id)}\n")
        answered, problem = time.monotonic(), ""
        while True:
            try:
                looked = self.on_head("argus.verl.ray_job_info", arguments, variables)
            except AnsibleConnectionFailure as error:
                looked = {"failed": True, "head_is_gone": True, "msg": str(error)}
            if looked.get("head_is_gone"):
                # Its container may be started again, or cluster_up.yml repairs it.
                problem = looked["msg"]
                display.display(f"{submission_id}  the head does not answer")
                time.sleep(LOOK_SECONDS)
            elif looked.get("failed"):
                return looked
            else:
                job = JobInfo.from_json(looked["job"])
                problem = job.problem if is_unreachable(job) else ""
                closing = "  collecting the final evidence" if job.state in ENDED and not job.ended else ""
                display.display(f"{progress_line(job, looked['time'])}{closing}")
                if job.ended:
                    break
            if not problem:
                answered = time.monotonic()
            elif time.monotonic() - answered > UNANSWERED_SECONDS:
                return {"failed": True, "msg": given_up(submission_id, problem)}
        if job.state == SUCCEEDED:
            return {"job": looked["job"], "state": job.state}
        where = f"Its log:  {job.archive}/logs"
        display.display("\n".join([*log_lines(job), *failure_lines(job.failure), where]))
        fetch = playbook_command("fetch", {"submission_id": submission_id})
        message = f"{submission_id} {job.state}: {job.reason}. Its archive: {fetch}"
        kind = job.failure.kind if job.failure else None
        return {"failed": True, "state": job.state, "kind": kind, "msg": message}


def refusal(findings: list[dict[str, str]]) -> dict[str, Any]:
    """Show what is wrong. Ansible prints a failure's message twice and all of its result: both are short."""
    display.display(f"\n{findings_table(Finding(**finding) for finding in findings)}")
    wrong = len(errors(Finding(**finding) for finding in findings))
    count = f"{wrong} error{'s'[: wrong > 1]}, see the table above"
    message = f"The JobSpec was refused; nothing was changed: {count}"
    return {"failed": True, "changed": False, "msg": message}
