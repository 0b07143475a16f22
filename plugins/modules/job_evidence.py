#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: job_evidence
short_description: Collect evidence of a training job
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs on a node, preferably on the head. Collects Ray's view of the job, and processes, stacks and GPU states from
    every node, into the C(debug/) directory of the job's archive. Stacks are taken without pausing any process.
  - If Ray does not answer, only this node is examined, and the index of the evidence records that.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
    details: Collects nothing.
  diff_mode:
    support: none
options:
  submission_id:
    description: The job's id.
    type: str
    required: true
  shared_root:
    description: The path of the shared root on this host.
    type: path
    default: /private
"""

EXAMPLES = r"""
- name: Find out what a silent job is doing
  argus.verl.job_evidence:
    submission_id: grpo-20260101-120000-1a2b
"""

RETURN = r"""
archive:
  description: The job's directory.
  type: str
  returned: always
files:
  description: The number of files that were written.
  type: int
  returned: always
nodes:
  description: The nodes that evidence was collected from.
  type: list
  elements: str
  returned: always
problems:
  description: What could not be collected, and why.
  type: list
  elements: str
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.evidence import Collected, EvidenceError, collect
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.listing import UnknownJobError, find_job
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.registry import Registry
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.ray_api import allow_host
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.reading import UnreadableError
from ansible_collections.argus.verl.plugins.module_utils.node_environment import enter_node


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "submission_id": {"type": "str", "required": True},
            "shared_root": {"type": "path", "default": "/private"},
        },
        supports_check_mode=True,
    )
    enter_node(module.fail_json)
    try:
        archive = find_job(Path(module.params["shared_root"]) / "jobs", module.params["submission_id"])
        job = Registry().read(archive.submission_id)
        allow_host(job.address if job else "")
        collected = Collected(str(archive.path)) if module.check_mode else collect(archive)
    except (UnknownJobError, EvidenceError, UnreadableError) as error:
        module.fail_json(msg=str(error))
    else:
        module.exit_json(changed=True, **collected.to_json())


if __name__ == "__main__":
    main()
