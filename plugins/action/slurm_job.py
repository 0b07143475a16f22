# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.slurm_job`: ask Slurm for hosts and wait until it allocates them, or cancel the job that has them.

Documented in plugins/modules/slurm_job.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import findings_table
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.modules.slurm_job import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, documented_options, failure
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report
from ansible_collections.argus.verl.plugins.plugin_utils.slurm import commands
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.allocation import RUNNING, Allocation, SlurmError

display = Display()
# The first and the longest pause between queries for a job that waits: Slurm's controller serves a whole site.
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 15.0
SAME_USER_WARNING = (
    "The code of jobs runs as the user who runs Ansible here. If the hosts have this user's home directory, jobs can "
    "read and change what is in it, such as keys, inventories and the files of shells. Use an account that has nothing "
    "else (docs/security.md)"
)
# The states of a job that will not run any more.
ENDED_STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT", "COMPLETING"),
)
LIST_FIELDS = ("head", "options", "setup", "srun_options", "prefix")


def request_of(name: str, values: dict[str, Any]) -> commands.AllocationRequest:
    """The request of a task. Its values become typed, as -e passes text."""
    cpus = values.get("cpus")
    fields: dict[str, Any] = {key: str(value) for key, value in values.items() if value is not None}
    fields |= {key: tuple(map(str, values.get(key) or ())) for key in LIST_FIELDS}
    fields |= {"nodes": int(values.get("nodes") or 0), "cpus": None if cpus in (None, "") else int(cpus)}
    return commands.AllocationRequest(**{**fields, "job_name": name})


class ActionModule(Action):
    _supports_async = False
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        try:
            if arguments["state"] == "absent":
                return self._absent(arguments["name"])
            return self._present(arguments)
        except SlurmError as error:
            return failure(error)

    def _absent(self, name: str) -> Result:
        job_id = commands.find_job_id(name)
        if job_id is not None and not self._task.check_mode:
            commands.cancel(job_id)
        return {"changed": job_id is not None, "job_id": job_id or 0}

    def _present(self, arguments: Mapping[str, Any]) -> Result:
        name = arguments["name"]
        request = request_of(name, arguments["wish"])
        job_id = commands.find_job_id(name)
        result: Result = {"changed": job_id is None, "job_id": job_id or 0}
        if job_id is None:
            findings = list(commands.request_findings(request))
            if findings:
                return failure(f"Nothing was asked for.\n{findings_table(findings)}")
            result["script"] = commands.batch_script(request)
            result["diff"] = {"before": "", "after": result["script"], "after_header": "sbatch"}
        if self._task.check_mode:
            print_report("The batch script", text=result.get("script", "").splitlines())
            return result
        if job_id is None:
            job_id = commands.submit(result["script"])
            display.display(f"Slurm has job {job_id} ({name})")
            display.warning(SAME_USER_WARNING)
        problem = wait_until_running(lambda: commands.query_allocation(job_id), job_id, arguments["wait_timeout"])
        if problem and result["changed"]:
            commands.cancel(job_id)
            problem = f"{problem}. It was cancelled"
        return {**result, "job_id": job_id, **({"failed": True, "msg": problem} if problem else {})}


def wait_until_running(read_job: Callable[[], Allocation | None], job_id: int, seconds: float) -> str:
    """Wait until a job runs, without a limit if seconds is 0. Return why it will not run, or "" when it runs."""
    began = time.monotonic()
    shown = ""
    pause = FIRST_PAUSE_SECONDS
    while True:
        job = read_job()
        if job is not None and job.state == RUNNING:
            return ""
        if job is None or job.state in ENDED_STATES:
            reason = f"{job.state} ({job.reason or 'no reason given'})" if job else "not known to Slurm any more"
            return f"Slurm's job {job_id} is {reason}"
        line = waiting_line(job, time.time())
        if line != shown:
            display.display(line)
            shown = line
        if seconds and time.monotonic() - began > seconds:
            return f"Slurm's job {job_id} still waits after {seconds:.0f} s: {job.reason or job.state}"
        time.sleep(pause)
        pause = min(pause * 1.5, MAX_PAUSE_SECONDS)


def waiting_line(job: Allocation, now: float) -> str:
    """Why a job waits, in Slurm's words, and when Slurm expects it to begin."""
    reason = f" ({job.reason})" if job.reason else ""
    begins = ""
    if job.starts_at and job.starts_at > now:
        begins = f", expected to begin at {time.strftime('%H:%M on %Y-%m-%d', time.localtime(job.starts_at))}"
    return printable(f"Slurm's job {job.job_id} is {job.state}{reason}{begins}", lines=False)
