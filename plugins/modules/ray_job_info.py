#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_job_info
short_description: The state, progress and log of a training job
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Reads a job's archive, and asks the head for what the archive cannot know, such as why a job still waits.
  - Answers from the archive alone when the head does not answer, and then says so in RV(job.problem).
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
    description: The job's id.
    type: str
    required: true
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
  wait_timeout:
    description: For how many seconds to wait for the job's end.
    type: float
    default: 0
"""

EXAMPLES = r"""
- name: Look at a job
  argus.verl.ray_job_info:
    submission_id: grpo-20260101-120000-1a2b
    tail: 20
  register: result

- name: Insist that it ended well
  ansible.builtin.assert:
    that: result.job.state == 'SUCCEEDED'
"""

RETURN = r"""
job:
  description: What is known of the job.
  type: dict
  returned: always
  contains:
    submission_id:
      description: The job's id.
      type: str
    state:
      description: C(SUBMITTED), C(PENDING), C(RUNNING), C(SUCCEEDED), C(FAILED) or C(STOPPED).
      type: str
    ended:
      description: Whether the state is one of the last three, and the archive is complete.
      type: bool
    reason:
      description: Why it is in this state, as far as somebody said so.
      type: str
    workload:
      description: C(ppo), C(grpo) or C(sft).
      type: str
    code_id:
      description: The snapshot of verl that it runs on.
      type: str
    started_at:
      description: When its launcher started, in seconds since the epoch.
      type: float
    ended_at:
      description: When its trainer ended, in seconds since the epoch.
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
      description: The job's directory.
      type: str
    log:
      description: The last lines of the driver's log.
      type: list
      elements: str
    problem:
      description: Why the head could not be asked, or an empty string.
      type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.job_state import wait_for_end
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.ray_api import RayHead


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "submission_id": {"type": "str", "required": True},
            "shared_root": {"type": "path", "default": "/private"},
            "address": {"type": "str", "default": "http://127.0.0.1:8265"},
            "token_path": {"type": "path", "no_log": False},
            "tail": {"type": "int", "default": 0},
            "wait_timeout": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    params = module.params
    archive = Archive(f"{params['shared_root']}/jobs/{params['submission_id']}")
    if not archive.path.is_dir():
        module.fail_json(msg=f"There is no job archive {archive.path}. Is the submission id right?")
    token_path = params["token_path"] or os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    head = RayHead(params["address"], token_path) if params["address"] else None
    module.exit_json(changed=False, job=wait_for_end(archive, head, params["tail"], params["wait_timeout"]))


if __name__ == "__main__":
    main()
