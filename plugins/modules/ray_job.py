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
    Python. Checks the JobSpec, creates the job's archive in
    C(<shared_root>/jobs/<submission_id>/), and submits the job so that its driver runs on a worker.
  - First checks configuration, data, model, reward function, packages and disk space on the workers. Reports all
    problems in one table, before anything is changed.
  - Starts the job's steward, a process on the head that manages the job until it has ended. It waits for capacity,
    collects evidence and starts further attempts.
  - Submitting the same JobSpec under the same submission id again does not create a second job. Another JobSpec under
    the same id is an error.
  - Shows what became of the job, and the playbooks that a user may run next for it.
  - The defaults of a job let verl run on a cluster whose head has no CPUs, with checkpoints, metrics and logs in the
    archive. O(jobspec.trainer_overrides) overrides them, except for settings that the JobSpec controls.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
    details: Runs all checks. Creates no archive and submits no job.
  diff_mode:
    support: full
    details: Shows the Hydra overrides of a new job, and the state of a stopped one.
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
      - The job, with O(state=stopped). With O(state=submitted), use O(jobspec.submission_id).
    type: str
  file:
    description:
      - The JobSpec's file on the controller, relative to the current directory or to C(jobspecs/) beside the inventory.
        An alternative to O(jobspec).
    type: str
  command_line:
    description:
      - Whether extra variables of the command line, such as C(-e retries=2), that have the name of a key of
        O(jobspec) replace that key, and C(-e 'set=["key=value"]') adds to O(jobspec.trainer_overrides). Variables of
        the inventory do not. Used by the role C(job).
    type: bool
    default: false
  defaults:
    description:
      - Defaults for all jobs of the cluster, with the keys of O(jobspec). A JobSpec overrides them.
      - Mappings are merged key by key.
      - A JobSpec cannot change the shared root. Its C(ray.address) is this one, or on the head itself.
    type: dict
    default: {}
  secret_values:
    description:
      - The values of O(jobspec.secrets) by name.
    type: dict
    default: {}
  secrets_from_environment:
    description:
      - The names of O(jobspec.secrets) whose values may be taken from the controller's environment. O(secret_values)
        has precedence.
      - Names that change how programs run, such as E(PATH), are never secrets.
    type: list
    elements: str
    default: []
  user_code:
    description:
      - The users' own Python files and directories on the controller, as C(staging_user_code) names them. If the reward
        function differs from them, there is a warning.
    type: list
    elements: str
    default: []
  requested_by:
    description:
      - Who stops the job, with O(state=stopped), for the archive. The user and the name of the controller if not given.
    type: str
    default: ""
  resume_from:
    description: Overrides O(jobspec.resume_from).
    type: str
  resubmitted_from:
    description:
      - The job whose JobSpec is submitted again. The JobSpec is the one with which it was
        submitted, which jobs cannot change. Recorded in the archive.
    type: str
  wait:
    description: Whether to follow the job until it has ended, with a progress line at least every 10 seconds.
    type: bool
    default: false
  # begin generated: the keys of a JobSpec, by make generate
  jobspec:
    description: The JobSpec. Required with O(state=submitted), unless O(file) or O(resubmitted_from)
      is given.
    type: dict
    suboptions:
      submission_id:
        description: The id of the job. It matches C([a-z0-9][a-z0-9._-]{0,62}). If it is not
          set, the id is C(<workload>-<UTC time>-<random>).
        type: str
      workload:
        description: The kind of training. All three use verl's Ray trainers; C(ppo) and C(grpo)
          run C(main_ppo).
        type: str
        choices:
        - ppo
        - grpo
        - sft
        required: true
      shared_root:
        description: The directory that all nodes share, at the same path. That of the inventory,
          or not set.
        type: str
        default: /private
      code_path:
        description: The snapshot of verl to run, as the name of a directory in C(<shared_root>/common/code/verl/)
          or as an absolute path.
        type: str
        required: true
      reward_fn_path:
        description: A Python file with the reward function, as C(FILE.py) or C(FILE.py:FUNCTION),
          relative to C(<shared_root>/user/code/) or absolute. The default function is C(compute_score).
          Or a function of a module in C(<shared_root>/user/code/), as C(PACKAGE.MODULE:FUNCTION).
          The module is imported by its name, so it may have relative imports. Requires verl
          0.7. If it is not set, verl uses its own reward function for the C(data_source) of
          the dataset.
        type: str
      model:
        description: The base model, as the name of a directory in C(<shared_root>/common/models/)
          or as an absolute path.
        type: str
        required: true
      dataset:
        description: A directory with C(train.parquet) and C(val.parquet), as the name of a
          directory in C(<shared_root>/datasets/) or as an absolute path. C(sft) does not need
          C(val.parquet).
        type: str
        required: true
      ray:
        description: How the job is submitted to Ray.
        type: dict
        default: {}
        suboptions:
          address:
            description: The address of Ray's Jobs API, as seen from the head, to which the
              cluster's token is sent. It is on the head itself, or that of the inventory.
            type: str
            default: http://127.0.0.1:8265
          runtime_env:
            description: Parts of Ray's runtime environment of the job that the collection does
              not decide. C(env_vars), which C(env_vars) replaces, C(config) with C(setup_timeout_seconds)
              and C(eager_install), C(nsight) and C(rocprof_sys).
            type: dict
            default: {}
          resources:
            description: The resources that the driver requests.
            type: dict
            default: {}
            suboptions:
              entrypoint_resources:
                description: Custom resources. At least one of them must exist only on workers,
                  to keep the driver off the head.
                type: dict
                default:
                  worker_node: 1
              entrypoint_num_cpus:
                description: The number of CPUs that the driver requests.
                type: float
                default: 1
      resources:
        description: The size of the job.
        type: dict
        default: {}
        suboptions:
          nnodes:
            description: The number of workers. The default is all workers that are alive.
            type: int
          gpus_per_node:
            description: The number of GPUs on each worker. The default is all GPUs.
            type: int
      trainer_overrides:
        description: Hydra overrides for the trainer, as a list of C(key=value) or as a mapping,
          nested or with dotted keys. They replace the job's defaults, such as C(trainer.total_epochs=1)
          and C(trainer.save_freq=10).
        type: raw
        default: []
      env_vars:
        description: Environment variables of the driver and its workers.
        type: dict
        default: {}
      secrets:
        description: Names of environment variables with secret values, such as C(WANDB_API_KEY).
          The driver and its workers get them. The values are in neither the archive nor Ray's
          API and dashboard, and they are masked in logs. The values come from C(job_secrets),
          or from the environment of the controller for the names in C(job_secrets_from_environment).
        type: list
        elements: str
        default: []
      retries:
        description: The number of further attempts after a node was lost, a process was killed,
          or communication failed after the first step. They resume from the last complete checkpoint.
          Errors in the job itself are never retried. A restart of the head counts as a lost
          node. Such a job resumes when the head is back.
        type: int
        default: 0
      deadline:
        description: The time limit of the job, in seconds or as in C(90m), C(1h30m) or C(2d).
          It starts with the submission and includes time in the queue and all attempts.
        type: str
      wait_for_resources:
        description: How long the job may wait until other jobs release resources, in seconds
          or as in C(2h). If it is not set, a job that does not fit at once is refused. A retry
          waits for the same time, or one day if it is not set.
        type: str
      start_timeout:
        description: The job is stalled if an attempt has not done its first step within this
          time. C(0) means no limit.
        type: str
        default: 60m
      stall_timeout:
        description: After its first step, the job is stalled after this time without a step
          and without a new line in its log. C(0) turns the check off.
        type: str
        default: 30m
      launcher:
        description: What starts the processes of the trainer. C(ray) is verl's way, C(torchrun)
          is for C(sft) with verl 0.6.1 or newer. C(verl.trainer.sft_trainer) then runs under
          C(torch.distributed.run), started by a task on each node.
        type: str
        choices:
        - ray
        - torchrun
        default: ray
      on_stall:
        description: What happens to a stalled job after its evidence was collected. C(report)
          lets it run, C(stop) ends it.
        type: str
        choices:
        - report
        - stop
        default: report
      resume_from:
        description: The id of a job with the same workload. The new job resumes from its last
          complete checkpoint.
        type: str
      debugger:
        description: Ray's debugger for the tasks and actors of the job. C(post_mortem) requires
          C(debugpy) 1.8 or newer on the workers and is used with VS Code; C(legacy) is used
          with C(ray debug). A job that waits for a debugger counts as stalled.
        type: str
        choices:
        - post_mortem
        - legacy
      tags:
        description: Labels of the job, as names and values.
        type: dict
        default: {}
      check_reward:
        description: The number of rows of the dataset with which the gate calls the reward
          function, in the environment of the job without its secrets. Each row is tried with
          its ground truth and with an empty text as the answer. A call that raises, or does
          not return a number, is an error. C(0) to C(64).
        type: int
        default: 0
      accept:
        description: Problems to report as warnings instead of errors. C(requirements) means
          that the image lacks packages that the snapshot declares. C(space) means that the
          checkpoints are not expected to fit on the disk.
        type: list
        elements: str
        choices:
        - requirements
        - space
        default: []
  # end generated
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
    - Facts that the gate determined on a worker, among them C(train_rows), C(val_rows), C(parameters), C(steps),
      C(checkpoint_space), C(free_bytes), and the C(versions) of the packages that verl declares.
  type: dict
  returned: when a job was submitted, or would be in check mode
reward_files:
  description: The SHA-256 of each file of the reward function, by its path relative to the shared root.
  type: dict
  returned: when a job was submitted, or would be in check mode
overrides:
  description: The Hydra overrides that the trainer gets.
  type: list
  elements: str
  returned: with O(state=submitted)
job:
  description: As returned by M(argus.verl.ray_job_info).
  type: dict
  returned: with O(wait=true)
"""
