#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_job
short_description: Submit or stop a training job
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs C(argus submit) or C(argus stop) on the head, from its machine. No module is sent, and the machine needs no
    Python. Checks the JobSpec, creates the job's archive in C(<shared_root>/jobs/<submission_id>/), and submits the job
    so that its driver runs on a worker.
  - First checks configuration, data, model, reward function, packages and disk space on the workers. Reports all
    problems in one table, before anything is changed.
  - Starts the job's steward, a process on the head that manages the job until it has ended. It waits for capacity,
    collects evidence and starts further attempts.
  - Submitting the same JobSpec under the same submission id again does not create a second job. Another JobSpec under
    the same id is an error.
  - Shows the new state of the job, and the playbooks that a user may run next for it.
  - The defaults of a job let verl run on a cluster whose head has no CPUs, with checkpoints, metrics and logs in the
    archive. The JobSpec's C(trainer_overrides) override them, except for settings that the JobSpec controls.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
    details: Runs all checks. Creates no archive and submits no job.
  diff_mode:
    support: full
    details: Shows the Hydra overrides of a new job, and what becomes of another one.
requirements: ["ray[default] on the head"]
options:
  state:
    description:
      - Whether to submit a job or to stop one.
    type: str
    choices: [submitted, stopped]
    default: submitted
  submission_id:
    description:
      - The job. With O(state=submitted), use the key of the JobSpec.
    type: str
  file:
    description:
      - The JobSpec's file on the controller, relative to the current directory or to C(jobspecs/) beside the inventory.
        An alternative to O(jobspec).
    type: str
  command_line:
    description:
      - Whether C(-e 'set=["key=value"]') changes the JobSpec. C(set) in the inventory is ignored. Used by the role
        C(job).
    type: bool
    default: false
  defaults:
    description:
      - Defaults for all jobs of the cluster, with the keys of O(jobspec). A JobSpec overrides them.
      - Mappings are merged key by key.
      - A JobSpec cannot change the shared root. If it sets C(ray.address), this must be the address of this cluster's
        head, or a loopback address.
    type: dict
    default: {}
  secret_values:
    description:
      - The values of the secrets of JobSpecs by name. Names that change how programs run, such as E(PATH), are never
        secrets.
    type: dict
    default: {}
  notify:
    description:
      - Where to send the job's events. A command, run on the head with each event as JSON on its standard input, or an
        C(http) or C(https) URL, which gets it by POST. See docs/monitoring.md.
    type: str
    default: ""
  limits:
    description:
      - How many C(jobs) may hold resources at once, and how many C(gpus) they may hold. The keys are tags, such as
        C(team=vision), or names of tags, such as C(user), whose values are then limited separately.
    type: dict
    default: {}
  sweep:
    description:
      - Submits several jobs with one JobSpec. Stops at the first job that is refused. Each of O(sweep.jobs) is a
        mapping with its C(submission_id), and in C(set) a list of further keys of the JobSpec and overrides.
    type: dict
    default: {}
    suboptions:
      name:
        description: The value of the tag C(sweep) that each of the jobs gets.
        type: str
      at_once:
        description: How many jobs may run or reserve resources at once. V(0) is as many as fit.
        type: int
        default: 0
      jobs:
        description: The jobs.
        type: list
        elements: dict
        default: []
  user_code:
    description:
      - The users' own Python files and directories on the controller, in the same form as C(staging_user_code). Warns
        if one of them differs from the staged copy that the job uses.
    type: list
    elements: str
    default: []
  requested_by:
    description:
      - Who requested the stop, with O(state=stopped); recorded in the archive. By default C(user@controller).
    type: str
    default: ""
  resubmitted_from:
    description:
      - The job whose JobSpec is submitted again, as it was submitted. No job can have changed it. Recorded in the
        archive.
    type: str
  wait:
    description: Whether to follow the job until it has ended, with a progress line at least every 10 seconds.
    type: bool
    default: false
  jobspec:
    description:
      - The JobSpec, a mapping. Required with O(state=submitted), unless O(file) or O(resubmitted_from) is given.
      - Its keys are in docs/jobspec.md, and in docs/jobspec.schema.json for editors. The head checks it, and reports
        every error of it.
    type: raw
"""

EXAMPLES = r"""
- name: Submit a job with a JobSpec of six lines
  argus.verl.ray_job:
    jobspec:
      workload: grpo
      code_path: verl-0.9.1
      model: Qwen2.5-7B-Instruct
      dataset: gsm8k
      reward_fn_path: rewards.py:score
      trainer_overrides: {data.train_batch_size: 256}
  register: submitted

- name: Submit a job from a file and follow it to its end
  argus.verl.ray_job:
    file: grpo.yaml
    wait: true

- name: Stop the job
  argus.verl.ray_job:
    state: stopped
    submission_id: "{{ submitted.submission_id }}"
"""

RETURN = r"""
submission_id:
  description: The job's id.
  type: str
  returned: success
archive:
  description: The job's directory, as the nodes see it.
  type: str
  returned: success
state:
  description:
    - The job's state. For a new job C(SUBMITTED), or C(QUEUED) if it waits for capacity.
  type: str
  returned: success
checkpoint:
  description: The step of the job's last complete checkpoint, from which another job can resume. Not set without one.
  type: int
  returned: with O(state=stopped)
facts:
  description:
    - Facts that the pre-submission checks determined on a worker, among them C(train_rows), C(val_rows), C(parameters),
      C(steps), C(checkpoint_space), C(free_bytes), and the C(versions) of the packages that verl declares.
  type: dict
  returned: when a job was submitted, or would be in check mode
files:
  description: The SHA-256 of each of the users' files that the job uses, by its path relative to the shared root.
  type: dict
  returned: when a job was submitted, or would be in check mode
overrides:
  description: The Hydra overrides that the trainer gets.
  type: list
  elements: str
  returned: with O(state=submitted)
jobs:
  description: One result for each job of O(sweep). Of a sweep without errors, no other values are returned.
  type: list
  elements: dict
  returned: with O(sweep)
job:
  description: As returned by M(argus.verl.ray_job_info).
  type: dict
  returned: with O(wait=true)
"""
