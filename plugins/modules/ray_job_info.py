#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_job_info
short_description: Return information about training jobs
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Reads the job's archive, and asks the head for what is not in the archive, such as why a job is still pending.
  - If the head does not answer, the result comes from the archives alone, and RV(problem) has the reason.
  - Runs on any host that sees the shared root. On the head's machine it also works when the head's container is gone.
  - Needs neither Ray nor any other package on that host.
  - Reads archives as the user of the nodes, never as root. Jobs can write to archives; what is not as it should be is
    reported as unreadable, and never hides other jobs.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  submission_id:
    description: The job's id. If empty, the latest jobs are listed.
    type: str
    default: ""
  limit:
    description: The maximum number of jobs to list.
    type: int
    default: 20
  shared_root:
    description: The path of the shared root on this host.
    type: path
    default: /private
  address:
    description: The address of the head's Jobs API. With an empty string, only the archives are read.
    type: str
    default: http://127.0.0.1:8265
  token_path:
    description: The file with the cluster's token. E(RAY_AUTH_TOKEN_PATH) if not given.
    type: path
  tail:
    description: How many lines from the end of the driver's log to return.
    type: int
    default: 0
  log_position:
    description:
      - A position in the driver's log, from RV(job.log_position) of an earlier call. The lines after it are returned
        instead of the last ones. Only whole lines are returned, and at most 1 MiB.
      - An empty string is the beginning of the log.
    type: str
  wait_timeout:
    description: How many seconds to wait for the job to end, or for the log to grow beyond O(log_position).
    type: float
    default: 0
"""

EXAMPLES = r"""
- name: Get the status of a job
  argus.verl.ray_job_info:
    submission_id: grpo-20260101-120000-1a2b
    tail: 20
  register: result

- name: List the latest jobs, whether the cluster is up or down
  argus.verl.ray_job_info:
    limit: 5
  register: listed

- name: Require that the job succeeded
  ansible.builtin.assert:
    that: result.job.state == 'SUCCEEDED'
"""

RETURN = r"""
job:
  description: The job.
  type: dict
  returned: with O(submission_id)
  contains:
    submission_id:
      description: The job's id.
      type: str
    state:
      description:
        - C(QUEUED), C(SUBMITTED), C(PENDING), C(RUNNING), C(ENDING), C(RETRYING), C(SUCCEEDED), C(FAILED) or
          C(STOPPED); C(UNKNOWN) without a status.json; C(UNREADABLE) if it cannot be read. docs/archive.md explains
          each.
      type: str
    ended:
      description: Whether the job is C(SUCCEEDED), C(FAILED) or C(STOPPED), and its archive is complete.
      type: bool
    reason:
      description: Why the job is in this state, if that is known.
      type: str
    notice:
      description: What the job waits for, according to its steward; otherwise an empty string.
      type: str
    failure:
      description:
        - Why a job failed, with its C(kind), the C(reason), the C(lines) of the log that show it, and in C(todo) what
          to do. docs/failures.md lists the kinds.
      type: dict
    workload:
      description: C(ppo), C(grpo) or C(sft); an empty string for a job without an archive.
      type: str
    code_id:
      description: The verl snapshot that the job runs on.
      type: str
    tags:
      description: The JobSpec's tags.
      type: dict
    lineage:
      description: The earlier jobs C(resumed_from) and C(resubmitted_from), if any.
      type: dict
    attempt:
      description: The number of the current attempt, starting with 1.
      type: int
    attempts:
      description:
        - The attempts that have ended, each with C(attempt), C(started_at), C(ended_at), C(state), C(kind), C(reason),
          and in C(resumed_from) the step that it resumed from.
      type: list
      elements: dict
    submitted_at:
      description: When the archive was created, in seconds since the epoch.
      type: float
    started_at:
      description: When the launcher of the first attempt started, in seconds since the epoch.
      type: float
    ended_at:
      description: When the last attempt ended, in seconds since the epoch. Not set before the job has ended.
      type: float
    silent_for:
      description: For a running job, the seconds since its launcher's last heartbeat, which comes every 2 seconds.
      type: float
    time_left:
      description: For a running job, the estimated seconds to its end, from its pace since the first step.
      type: float
    driver_host:
      description: The host name of the node that the driver runs on.
      type: str
    driver_node_id:
      description: Ray's id of that node, while the head knows the job.
      type: str
    driver_node_ip:
      description: The address of that node, once the driver has connected to Ray.
      type: str
    progress:
      description: C(step), C(total_steps), and the C(first) and C(last) value of the job's key C(metric).
      type: dict
    checkpoints:
      description: The steps that have a checkpoint.
      type: list
      elements: int
    archive:
      description: The job's directory; an empty string for a job that was submitted to Ray directly.
      type: str
    log:
      description: The last lines of the driver's log, or those after O(log_position).
      type: list
      elements: str
    log_position:
      description: The position in the log after these lines.
      type: str
    unreadable:
      description: What of the archive could not be read, and why.
      type: list
      elements: str
    jobspec:
      description: The JobSpec as its author wrote it; empty if it cannot be read.
      type: dict
    problem:
      description: Why the head could not be asked, or an empty string.
      type: str
jobs:
  description: The latest jobs, the newest first, each as RV(job) but without log and JobSpec.
  type: list
  elements: dict
  returned: without O(submission_id)
total:
  description: The total number of jobs.
  type: int
  returned: without O(submission_id)
directory:
  description: The directory of the archives.
  type: str
  returned: without O(submission_id)
problem:
  description: Why the head could not be asked, or an empty string.
  type: str
  returned: always
time:
  description: The time on this host in seconds since the epoch, to compare with the times of jobs.
  type: float
  returned: always
"""

import os
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.launcher.ray_api import RayHead
from ansible_collections.argus.verl.plugins.module_utils.launcher.reading import UnreadableError
from ansible_collections.argus.verl.plugins.module_utils.privileges import failure, handed_over, without_root
from ansible_collections.argus.verl.plugins.module_utils.status.listing import UnknownJobError, find_job, latest_jobs
from ansible_collections.argus.verl.plugins.module_utils.status.logs import PositionError
from ansible_collections.argus.verl.plugins.module_utils.status.state import wait_for_end


def information(params: dict[str, Any], token_path: str) -> dict[str, Any]:
    """What the module returns: one job, or the latest ones."""
    jobs = Path(params["shared_root"]) / "jobs"
    head = RayHead(params["address"], token_path) if params["address"] else None
    try:
        if params["submission_id"]:
            archive = find_job(jobs, params["submission_id"])
            job = wait_for_end(archive, head, params["tail"], params["wait_timeout"], params["log_position"])
            result = {"job": {**job.to_json(), "jobspec": archive.read_jobspec()}, "problem": job.problem}
        else:
            result = latest_jobs(jobs, head, params["limit"]).to_json()
    except (UnknownJobError, UnreadableError) as error:
        return failure(str(error))
    except PositionError as error:
        return failure(f"log_position {params['log_position']!r} is not a position in a log: {error}")
    return {"changed": False, "time": time.time(), **result}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "submission_id": {"type": "str", "default": ""},
            "limit": {"type": "int", "default": 20},
            "shared_root": {"type": "path", "default": "/private"},
            "address": {"type": "str", "default": "http://127.0.0.1:8265"},
            "token_path": {"type": "path", "no_log": False},
            "tail": {"type": "int", "default": 0},
            "log_position": {"type": "str"},
            "wait_timeout": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["shared_root"])
    token_path = handed_over(root, module.params["token_path"] or os.environ.get("RAY_AUTH_TOKEN_PATH", ""))
    result = without_root(root, lambda: information(module.params, token_path))
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
