#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_job_info
short_description: The state, progress and log of a training job, or the last jobs
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Reads a job's archive, and asks the head for what the archive cannot know, such as why a job still waits.
  - Answers from the archives alone when the head does not answer, and then says so in RV(problem).
  - Runs wherever the shared root is; on the head's machine it also answers when the head's node is gone.
  - Needs neither Ray nor any other package on the host it runs on.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  submission_id:
    description: The job's id. If empty, the last jobs are listed.
    type: str
    default: ""
  limit:
    description: How many jobs to list at most.
    type: int
    default: 20
  shared_root:
    description: The shared root as this host sees it.
    type: path
    default: /private
  address:
    description: The head's Jobs API. An empty string asks nobody.
    type: str
    default: http://127.0.0.1:8265
  token_path:
    description: A file that holds the cluster's token. E(RAY_AUTH_TOKEN_PATH) if not given.
    type: path
  tail:
    description: How many of the last lines of the driver's log to return.
    type: int
    default: 0
  log_position:
    description:
      - A place in the driver's log, as RV(job.log_position) of an earlier look. Lines after it are returned in place of
        the last ones, whole lines only, and at most 1 MiB.
      - An empty string is the log's beginning.
    type: str
  wait_timeout:
    description: For how many seconds to wait for the job's end, or for the log to grow beyond O(log_position).
    type: float
    default: 0
"""

EXAMPLES = r"""
- name: Look at a job
  argus.verl.ray_job_info:
    submission_id: grpo-20260101-120000-1a2b
    tail: 20
  register: result

- name: List the last jobs, with the cluster up or down
  argus.verl.ray_job_info:
    limit: 5
  register: listed

- name: Insist that it ended well
  ansible.builtin.assert:
    that: result.job.state == 'SUCCEEDED'
"""

RETURN = r"""
job:
  description: What is known of the job.
  type: dict
  returned: with O(submission_id)
  contains:
    submission_id:
      description: The job's id.
      type: str
    state:
      description:
        - C(QUEUED), C(SUBMITTED), C(PENDING), C(RUNNING), C(ENDING), C(RETRYING), C(SUCCEEDED), C(FAILED) or
          C(STOPPED); C(UNKNOWN) without a status.json. Each is explained in docs/archive.md.
      type: str
    ended:
      description: Whether the state is one of the last three, and the archive is complete.
      type: bool
    reason:
      description: Why it is in this state, as far as somebody said so.
      type: str
    failure:
      description:
        - Of a job that failed, its C(kind), the C(reason), the C(lines) of the log that tell it, and what C(todo).
        - The kinds are in docs/failures.md.
      type: dict
    workload:
      description: C(ppo), C(grpo) or C(sft); an empty string for a job without an archive.
      type: str
    code_id:
      description: The snapshot of verl that it runs on.
      type: str
    tags:
      description: The JobSpec's tags.
      type: dict
    lineage:
      description: The jobs that it comes from, C(resumed_from) and C(resubmitted_from), if any.
      type: dict
    attempt:
      description: Which attempt it is in, from 1.
      type: int
    attempts:
      description:
        - The attempts that have ended, each with C(attempt), C(started_at), C(ended_at), C(state), C(kind), C(reason),
          and in C(resumed_from) the step that it went on from.
      type: list
      elements: dict
    submitted_at:
      description: When its archive was made, in seconds since the epoch.
      type: float
    started_at:
      description: When the launcher of its first attempt started, in seconds since the epoch.
      type: float
    ended_at:
      description: When its last trainer ended, in seconds since the epoch. Nothing before the job has ended.
      type: float
    silent_for:
      description: Of a running job, the seconds since its launcher's last sign of life, which comes every 2 seconds.
      type: float
    time_left:
      description: Of a running job, the seconds that it still needs, from its pace since the first step.
      type: float
    driver_host:
      description: The host name of the node that its driver runs on.
      type: str
    driver_node_id:
      description: Ray's id of that node, as long as the head knows the job.
      type: str
    driver_node_ip:
      description: That node's address, once the driver has connected to Ray.
      type: str
    progress:
      description: C(step), C(total_steps), and of the C(metric) that matters first its C(first) and C(last) value.
      type: dict
    checkpoints:
      description: The steps of which there is a checkpoint.
      type: list
      elements: int
    archive:
      description: The job's directory; an empty string for a job that Ray knows and that has none.
      type: str
    log:
      description: The last lines of the driver's log, or those after O(log_position).
      type: list
      elements: str
    log_position:
      description: The place in the log after these lines.
      type: str
    jobspec:
      description: The JobSpec as its author gave it.
      type: dict
    problem:
      description: Why the head could not be asked, or an empty string.
      type: str
jobs:
  description: The last jobs, the newest first, each as RV(job) but without its log and JobSpec.
  type: list
  elements: dict
  returned: without O(submission_id)
total:
  description: How many jobs there are in all.
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
  description: The time on this host, in seconds since the epoch, for comparisons with the times of jobs.
  type: float
  returned: always
"""

import os
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.job.submission_id import SUBMISSION_ID
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.launcher.ray_api import RayHead
from ansible_collections.argus.verl.plugins.module_utils.status.listing import recent, unknown_job
from ansible_collections.argus.verl.plugins.module_utils.status.state import wait_for_end


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
    params = module.params
    jobs = Path(params["shared_root"]) / "jobs"
    token_path = params["token_path"] or os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    head = RayHead(params["address"], token_path) if params["address"] else None
    if not params["submission_id"]:
        module.exit_json(changed=False, time=time.time(), **recent(jobs, head, params["limit"]))
    archive = Archive(jobs / params["submission_id"])
    if not SUBMISSION_ID.fullmatch(params["submission_id"]) or not archive.path.is_dir():
        module.fail_json(msg=unknown_job(jobs, params["submission_id"]))
    try:
        job = wait_for_end(archive, head, params["tail"], params["wait_timeout"], params["log_position"])
    except ValueError as error:
        module.fail_json(msg=f"log_position {params['log_position']!r} is no place in a log ({error})")
        raise SystemExit from error
    job["jobspec"] = archive.read_json("config/job_spec.json")
    module.exit_json(changed=False, time=time.time(), job=job, problem=job["problem"])


if __name__ == "__main__":
    main()
