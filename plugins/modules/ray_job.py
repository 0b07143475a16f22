#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_job
short_description: Submit a training job from its JobSpec, or stop it
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs on the head, with Ray's job SDK. Checks the JobSpec, reserves the job's archive under
    C(<shared_root>/jobs/<submission_id>/), and submits the job with its driver forced onto a worker.
  - Everything that is wrong is said at once, in one table, before anything is changed.
  - The same submission id with the same JobSpec again is no second job. With another JobSpec it is an error.
  - The job's settings start from defaults under which verl 0.9 runs on a head without CPUs, with its checkpoints,
    metrics and logs in the archive. O(jobspec.trainer_overrides) has the last word on all that is not the cluster's.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
    details: All checks are made, no archive is reserved and no job submitted.
  diff_mode:
    support: full
    details: The difference is the job's list of Hydra overrides.
requirements: ["ray[default] on the head"]
options:
  state:
    description: Whether the job is to be submitted or stopped.
    type: str
    choices: [submitted, stopped]
    default: submitted
  submission_id:
    description: The job to stop, with O(state=stopped). With O(state=submitted), use O(jobspec.submission_id).
    type: str
  file:
    description:
      - The name of the JobSpec's file on the controller, relative to the current directory or to C(jobspecs/) beside
        the inventory. Alternative to O(jobspec).
    type: str
  defaults:
    description:
      - What holds for all jobs of the cluster whose JobSpec does not say otherwise, named as in O(jobspec).
      - Mappings are merged key by key.
    type: dict
    default: {}
  given:
    description:
      - The JobSpec as its author wrote it, for the archive. Set by the action plugin, which merges O(defaults) into
        O(jobspec).
    type: dict
  wait:
    description: Whether to follow the job to its end, with a line of progress at least every 10 seconds.
    type: bool
    default: false
  jobspec:
    description: The JobSpec. Required with O(state=submitted), unless O(file) is given.
    type: dict
    suboptions:
      submission_id:
        description:
          - The job's id, C([a-z0-9][a-z0-9._-]{0,62}). C(<workload>-<UTC time>-<random>) if not given.
        type: str
      workload:
        description: What to train. All three run on verl's Ray trainers, V(ppo) and V(grpo) on main_ppo.
        type: str
        choices: [ppo, grpo, sft]
        required: true
      shared_root:
        description: The directory that all nodes see at the same path.
        type: str
        default: /private
      code_path:
        description:
          - The snapshot of verl to run on, the id of one under C(<shared_root>/common/code/verl/) or an absolute path.
        type: str
        required: true
      reward_fn_path:
        description:
          - A Python file with the reward function, C(FILE.py) or C(FILE.py:FUNCTION), relative to
            C(<shared_root>/user/code/) or absolute. The function is C(compute_score) if not named.
          - verl's own reward for the data's C(data_source) if not given.
        type: str
      model:
        description: The base model, the name of one under C(<shared_root>/common/models/) or an absolute path.
        type: str
        required: true
      dataset:
        description:
          - A directory with C(train.parquet) and C(val.parquet), the name of one under C(<shared_root>/datasets/) or an
            absolute path.
        type: str
        required: true
      ray:
        description: How the job is submitted.
        type: dict
        default: {}
        suboptions:
          address:
            description: The Jobs API as the head sees it.
            type: str
            default: http://127.0.0.1:8265
          resources:
            description: What the driver asks for.
            type: dict
            default: {}
            suboptions:
              entrypoint_resources:
                description: Custom resources, of which at least one keeps the driver off the head.
                type: dict
                default: {worker_node: 1}
              entrypoint_num_cpus:
                description: CPUs.
                type: float
                default: 1
      resources:
        description: The job's size.
        type: dict
        default: {}
        suboptions:
          nnodes:
            description: How many workers. All that are alive if not given.
            type: int
          gpus_per_node:
            description: How many GPUs of each. All if not given.
            type: int
      trainer_overrides:
        description:
          - Hydra overrides for the trainer, as a list of C(key=value) or as a mapping, nested or with dotted keys.
          - They come after the job's defaults, among them C(trainer.total_epochs=1) and C(trainer.save_freq=10).
        type: raw
        default: []
      env_vars:
        description: Environment variables of the driver and all its workers.
        type: dict
        default: {}
"""

EXAMPLES = r"""
- name: Train, with a JobSpec of six lines
  argus.verl.ray_job:
    jobspec:
      workload: grpo
      code_path: verl-0.9.1
      model: Qwen2.5-7B-Instruct
      dataset: gsm8k
      reward_fn_path: rewards.py:score
      trainer_overrides: {data.train_batch_size: 256}
  register: submitted

- name: The same from a file, followed to its end
  argus.verl.ray_job:
    file: grpo.yaml
    wait: true

- name: Stop it
  argus.verl.ray_job:
    state: stopped
    submission_id: "{{ submitted.submission_id }}"
"""

RETURN = r"""
submission_id:
  description: The job's id.
  type: str
  returned: always
archive:
  description: The job's directory, as nodes see it.
  type: str
  returned: always
state:
  description: The job's state.
  type: str
  returned: always
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

import os
import time
import traceback
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.argus.verl.plugins.module_utils import jobspec
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, findings_table
from ansible_collections.argus.verl.plugins.module_utils.job_state import describe
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import STOPPED, Archive
from ansible_collections.argus.verl.plugins.module_utils.ray_api import RayApiError, RayHead
from ansible_collections.argus.verl.plugins.module_utils.submission import (
    file_findings,
    read_marker,
    same_spec,
    send,
)

try:
    import ray
    from ray.job_submission import JobSubmissionClient
except ImportError:
    RAY_ERROR: str | None = traceback.format_exc()
else:
    RAY_ERROR = None

# How long a stopped job may take to end; the launcher gives its trainer 10 s before it kills it.
STOP_SECONDS = 40


def refuse(module: AnsibleModule, findings: list[Finding]) -> None:
    if findings:
        module.fail_json(
            msg=f"The JobSpec was refused, nothing was changed.\n{findings_table(findings)}",
            findings=[finding.as_dict() for finding in findings],
        )


def submitted(module: AnsibleModule) -> None:
    findings, spec = jobspec.check(module.params["jobspec"])
    given = module.params["given"] or module.params["jobspec"]
    refuse(module, findings)
    head = RayHead(spec["ray"]["address"], os.environ.get("RAY_AUTH_TOKEN_PATH", ""))
    submission_id = spec["submission_id"] or jobspec.new_submission_id(spec["workload"])
    archive = Archive(f"{spec['shared_root']}/jobs/{submission_id}")
    if archive.path.is_dir():
        answer_for_taken(module, archive, given, head)
    try:
        cluster = jobspec.Cluster.of(head.nodes())
    except RayApiError as error:
        module.fail_json(msg=f"{error}. Is the cluster up? See cluster_status.yml.")
    refuse(module, file_findings(spec) + jobspec.size_findings(spec, cluster))

    code_path = Path(jobspec.resolve_path(spec["code_path"], spec["shared_root"], "common/code/verl"))
    code_id = read_marker(code_path) or ""
    job = jobspec.plan(spec, cluster, code_id, submission_id)
    result: dict[str, Any] = {
        "submission_id": submission_id,
        "archive": job.archive,
        "state": "SUBMITTED",
        "overrides": job.overrides,
        "diff": {"before": "", "after": "".join(f"{override}\n" for override in job.overrides)},
    }
    if not module.check_mode:
        try:
            send(archive, given, job, JobSubmissionClient(job.address))
        except FileExistsError:
            answer_for_taken(module, archive, given, head)
        except Exception as error:
            module.fail_json(msg=f"{submission_id} could not be submitted: {error}. Its archive is {job.archive}.")
    module.exit_json(changed=True, **result)


def answer_for_taken(module: AnsibleModule, archive: Archive, given: dict[str, Any], head: RayHead) -> None:
    """The id has an archive: the state of the same job, or an error for another one."""
    if not same_spec(archive, given):
        finding = Finding(
            "submission_id",
            f"{archive.submission_id!r} is taken by another JobSpec, see {archive.path}/config/job_spec.json",
            "choose another id, or leave it out; archives are never reused",
        )
        refuse(module, [finding])
    state = describe(archive, head, tail=0)["state"]
    overrides = (archive.read_json("config/plan.json") or {}).get("overrides", [])
    module.exit_json(
        changed=False,
        submission_id=archive.submission_id,
        archive=str(archive.path),
        state=state,
        overrides=overrides,
    )


def stopped(module: AnsibleModule) -> None:
    submission_id = module.params["submission_id"]
    spec = module.params["jobspec"] or {}
    archive = Archive(f"{spec.get('shared_root') or '/private'}/jobs/{submission_id}")
    address = (spec.get("ray") or {}).get("address") or "http://127.0.0.1:8265"
    head = RayHead(address, os.environ.get("RAY_AUTH_TOKEN_PATH", ""))

    def status() -> str:
        job = head.job(submission_id)
        if job is None:
            module.fail_json(msg=f"The head knows no job {submission_id!r}. `ray job list` there shows all.")
            raise SystemExit
        return str(job["status"])

    try:
        before = status()
        result = {"submission_id": submission_id, "archive": str(archive.path)}
        if before not in ("PENDING", "RUNNING"):
            module.exit_json(changed=False, state=before, **result)
        if not module.check_mode:
            if before == "PENDING":
                cancel_pending(submission_id)
                if archive.path.is_dir():
                    archive.set_status(STOPPED, reason="stopped while it waited for its driver to be started")
            else:
                JobSubmissionClient(address).stop_job(submission_id)
            deadline = time.monotonic() + STOP_SECONDS
            while status() in ("PENDING", "RUNNING"):
                if time.monotonic() > deadline:
                    module.fail_json(msg=f"{submission_id} still runs {STOP_SECONDS} s after it was told to stop.")
                time.sleep(0.2)
    except RayApiError as error:
        module.fail_json(msg=f"{error}. Is the cluster up? See cluster_status.yml.")
    module.exit_json(changed=True, state=STOPPED, diff={"before": f"{before}\n", "after": f"{STOPPED}\n"}, **result)


def cancel_pending(submission_id: str) -> None:
    """End a job whose driver was not started yet: Ray's stop_job says True to that and does nothing."""
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    actor = ray.get_actor(f"_ray_internal_job_actor_{submission_id}", namespace="SUPERVISOR_ACTOR_RAY_NAMESPACE")
    ray.kill(actor)
    ray.shutdown()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["submitted", "stopped"], "default": "submitted"},
            "submission_id": {"type": "str"},
            "file": {"type": "str"},
            "defaults": {"type": "dict", "default": {}},
            "given": {"type": "dict"},
            "wait": {"type": "bool", "default": False},
            "jobspec": {"type": "dict", "options": jobspec.OPTIONS},
        },
        required_if=[("state", "stopped", ["submission_id"]), ("state", "submitted", ["jobspec"])],
        supports_check_mode=True,
    )
    if RAY_ERROR:
        module.fail_json(msg=missing_required_lib("ray[default]"), exception=RAY_ERROR)
    submitted(module) if module.params["state"] == "submitted" else stopped(module)


if __name__ == "__main__":
    main()
