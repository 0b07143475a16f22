#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: job_stewards
short_description: "Internal: start missing stewards of training jobs"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs on the head. Every job has a steward there, a process that manages the job until it has ended. When the head's
    container is restarted, the stewards are gone, and Ray has lost its jobs.
  - Starts a steward for each registered job that has none and whose archive is not closed. The steward finds out what
    happened to the job, and starts another attempt if the job has retries left.
  - Ignores archives that this cluster has not submitted, whatever they contain.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  shared_root:
    description: The path of the shared root on this host.
    type: path
    default: /private
  registry:
    description:
      - The directory that records which jobs this cluster has submitted. By default, that of this node.
    type: path
  adopt:
    description:
      - Jobs to register although this cluster has not submitted them, for example because its head was moved to another
        machine. Their JobSpecs are taken from their archives, which jobs can write. Check them first.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Start missing stewards after the head was restarted
  argus.verl.job_stewards:

- name: Take over a job of an earlier head
  argus.verl.job_stewards:
    adopt: [grpo-20260101-120000-1a2b]
"""

RETURN = r"""
started:
  description: The jobs that a steward was started for.
  type: list
  elements: str
  returned: always
"""

import time
from collections.abc import Sequence
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import DEFAULT_SHARED_ROOT, JOBS
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.listing import UnknownJobError, find_job
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.registry import Registered, Registry
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.services import start_steward
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher import steward
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.ray_api import allow_host
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.reading import UnreadableError
from ansible_collections.argus.verl.plugins.module_utils.node_environment import enter_node


def without_steward(jobs: Path, submitted: Sequence[str]) -> tuple[list[Archive], dict[str, str]]:
    """The submitted jobs whose archives are not closed and whose steward is gone; and why others cannot get one."""
    found, problems = [], {}
    for submission_id in submitted:
        archive = Archive(jobs / submission_id)
        try:
            if archive.needs_steward():
                with steward.lock_of(archive) as free:
                    found += [archive] * free
        except (OSError, UnreadableError) as error:
            # A job can put anything into its archive. The other jobs need their stewards nevertheless.
            problems[submission_id] = str(error)
    return found, problems


def adopted(jobs: Path, submission_ids: Sequence[str]) -> list[Registered]:
    """Jobs as their archives describe them. Raises UnknownJobError."""
    archives = [find_job(jobs, submission_id) for submission_id in submission_ids]
    root = str(jobs.parent)
    return [Registered(one.submission_id, time.time(), one.read_jobspec(), root) for one in archives]


def address_of(registry: Registry, submission_id: str) -> str:
    """The address of the inventory at the submission of a job; empty if its entry cannot be read."""
    try:
        job = registry.read(submission_id)
    except UnreadableError:
        return ""
    return job.address if job else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "shared_root": {"type": "path", "default": DEFAULT_SHARED_ROOT},
            "registry": {"type": "path"},
            "adopt": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    enter_node(module.fail_json)
    jobs, registry = Path(module.params["shared_root"]) / JOBS, Registry(module.params["registry"])
    try:
        known = set(registry.ids())
        new = adopted(jobs, [job for job in module.params["adopt"] if job not in known])
    except (UnknownJobError, UnreadableError) as error:
        module.fail_json(msg=str(error))
        return
    found, problems = without_steward(jobs, sorted({*known, *(job.submission_id for job in new)}))
    if not module.check_mode:
        for job in new:
            registry.write(job)
        for archive in found:
            allow_host(address_of(registry, archive.submission_id))
            start_steward(archive)
    for submission_id, problem in problems.items():
        module.warn(f"{submission_id} gets no steward: {problem}")
    module.exit_json(changed=bool(new or found), started=[archive.submission_id for archive in found])


if __name__ == "__main__":
    main()
