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
  - Looks at configuration, data, model, reward function, packages and space on the workers before. Everything that is
    wrong is said at once, in one table, before anything is changed.
  - Leaves a process on the head that keeps the job until its end - its queue, its evidence and its further attempts.
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
  secret_values:
    description:
      - The values of O(jobspec.secrets) by their names. Those that are missing here are taken from the controller's
        environment.
    type: dict
    default: {}
  resume_from:
    description: In place of O(jobspec.resume_from), for one submission.
    type: str
  resubmitted_from:
    description: The job whose JobSpec this is, for the archive.
    type: str
  findings:
    description:
      - What is wrong with the JobSpec already, as the action plugin has found. Nothing is submitted then. Set by the
        action plugin.
    type: list
    elements: dict
    default: []
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
      secrets:
        description:
          - Names of environment variables with secret values, such as C(WANDB_API_KEY). Driver and workers get them.
            The archive, Ray's API and dashboard do not, and logs that hold one are redacted.
          - The values come from O(secret_values) or from the controller's environment.
        type: list
        elements: str
        default: []
      retries:
        description:
          - How often to try again after a node was lost, a process was killed or communication broke after a first
            step, from the last complete checkpoint.
          - Errors of the job itself are never tried again, and a job does not outlive its head.
        type: int
        default: 0
      deadline:
        description:
          - How long the job may take from its submission on, as seconds or such as C(90m), C(1h30m), C(2d). Its time in
            the queue and all its attempts count.
        type: str
      wait_for_resources:
        description:
          - How long to wait for room when other jobs take it, as seconds or such as C(2h). The job is refused at once
            if not given. Retries wait as long, a day if not given.
        type: str
      stall_timeout:
        description: After how long without a step and without a line of log the job counts as stalled. V(0) never.
        type: str
        default: 30m
      on_stall:
        description: Whether a stalled job goes on once the evidence is collected, or is ended.
        type: str
        choices: [report, stop]
        default: report
      resume_from:
        description: The id of a job of the same workload, from whose last complete checkpoint this one goes on.
        type: str
      debugger:
        description:
          - Ray's debugger for the job's tasks and actors. V(post_mortem) needs C(debugpy) on the workers, and is seen
            with VS Code; V(legacy) with C(ray debug). A job that waits for a debugger counts as stalled.
        type: str
        choices: [post_mortem, legacy]
      tags:
        description: Anything to find the job by, as names and values.
        type: dict
        default: {}
      accept:
        description:
          - Findings to take as warnings. V(requirements), the image does not have what the snapshot declares.
            V(space), the checkpoints are not expected to fit.
        type: list
        elements: str
        choices: [requirements, space]
        default: []
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
  description:
    - The job's state. Of one that was just submitted, C(SUBMITTED), or C(QUEUED) when it waits for room.
  type: str
  returned: always
facts:
  description:
    - What the gate learnt on a worker, as far as it is known. Among others C(train_rows), C(val_rows), C(parameters),
      C(versions) of what verl declares, C(steps), C(checkpoint_space) and C(free_bytes).
  type: dict
  returned: when a job was submitted, or in check mode
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
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.gate.gate import examine
from ansible_collections.argus.verl.plugins.module_utils.job.options import OPTIONS
from ansible_collections.argus.verl.plugins.module_utils.job.parse import parse_jobspec, separate_key
from ansible_collections.argus.verl.plugins.module_utils.job.spec_checks import secret_value_findings
from ansible_collections.argus.verl.plugins.module_utils.job.submission_id import new_submission_id
from ansible_collections.argus.verl.plugins.module_utils.launcher import attempts, failures
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import (
    ENDED,
    QUEUED,
    STOPPED,
    SUBMITTED,
    Archive,
)
from ansible_collections.argus.verl.plugins.module_utils.launcher.plan import Plan
from ansible_collections.argus.verl.plugins.module_utils.launcher.ray_api import RayApiError, RayHead
from ansible_collections.argus.verl.plugins.module_utils.operations.submission import same_spec, send
from ansible_collections.argus.verl.plugins.module_utils.shared_root import DEFAULT_SHARED_ROOT, archive_path
from ansible_collections.argus.verl.plugins.module_utils.status.state import describe

try:
    from ray.job_submission import JobSubmissionClient
except ImportError:
    RAY_ERROR: str | None = traceback.format_exc()
else:
    RAY_ERROR = None

# Whoever has just reserved an archive writes its JobSpec at once.
RESERVED_SECONDS = 5
# How long a stopped job may take to end; the launcher gives its trainer 10 s before it kills it.
STOP_SECONDS = 60


def refuse(module: AnsibleModule, findings: list[Finding]) -> None:
    if errors(findings):
        module.fail_json(
            msg=f"The JobSpec was refused, nothing was changed.\n{findings_table(findings)}",
            findings=[finding.as_dict() for finding in findings],
        )


def submitted(module: AnsibleModule) -> None:
    findings, spec = parse_jobspec(module.params["jobspec"])
    given = module.params["given"] or module.params["jobspec"]
    secrets = module.params["secret_values"]
    findings += secret_value_findings(spec.secrets if spec else (), secrets)
    before = [Finding(**finding) for finding in module.params["findings"]]
    refuse(module, findings)
    if spec is None:  # it had a finding
        return
    head = RayHead(spec.address, os.environ.get("RAY_AUTH_TOKEN_PATH", ""))
    submission_id = spec.submission_id or new_submission_id(spec.workload)
    archive = Archive(archive_path(spec.shared_root, submission_id))
    if archive.path.is_dir() and not before:
        answer_for_taken(module, archive, given, head)
    try:
        looked = examine(spec, submission_id, head)
    except RayApiError as error:
        module.fail_json(msg=f"{error}. Is the cluster up? See cluster_status.yml.")
    wrong = {separate_key(finding) for finding in before}
    refuse(module, before + [finding for finding in looked.findings if separate_key(finding) not in wrong])
    job = looked.job
    if job is None:  # without a job there were findings
        raise RuntimeError(f"no job, and no finding: {spec}")
    queue = looked.capacity_problem
    result: dict[str, Any] = {
        "submission_id": submission_id,
        "archive": job.archive,
        "state": QUEUED if queue else SUBMITTED,
        "overrides": list(job.plan.overrides),
        "findings": [finding.as_dict() for finding in looked.findings],
        "facts": looked.facts.to_json(),
        "diff": {"before": "", "after": "".join(f"{override}\n" for override in job.plan.overrides)},
    }
    if not module.check_mode:
        lineage = {
            "resumed_from": spec.resume_from,
            "checkpoint": looked.checkpoint,
            "resubmitted_from": module.params["resubmitted_from"],
        }
        try:
            send(
                archive,
                given,
                job,
                JobSubmissionClient(job.plan.address),
                resolved=looked.resolved,
                secrets={name: secrets[name] for name in spec.secrets},
                lineage={name: value for name, value in lineage.items() if value},
                queue=queue,
            )
        except FileExistsError:
            answer_for_taken(module, archive, given, head)
        except Exception as error:
            module.fail_json(msg=f"{submission_id} could not be submitted: {error}. Its archive is {job.archive}.")
    module.exit_json(changed=True, **result)


def answer_for_taken(module: AnsibleModule, archive: Archive, given: dict[str, Any], head: RayHead) -> None:
    """The id has an archive: the state of the same job, or an error for another one."""
    deadline = time.monotonic() + RESERVED_SECONDS
    while archive.status().get("state") is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if not same_spec(archive, given):
        finding = Finding(
            "submission_id",
            f"{archive.submission_id!r} is taken by another JobSpec, see {archive.path}/config/job_spec.json",
            "choose another id, or leave it out; archives are never reused",
        )
        refuse(module, [finding])
    if archive.status().get("state") not in ENDED and not archive.is_kept() and not module.check_mode:
        # Its keeper has died with a head that was started again.
        archive.run_launcher("keep")
    state = describe(archive, head, tail=0)["state"]
    overrides = list((archive.plan() or Plan()).overrides)
    module.exit_json(
        changed=False,
        submission_id=archive.submission_id,
        archive=str(archive.path),
        state=state,
        overrides=overrides,
    )


def stopped(module: AnsibleModule) -> None:
    submission_id = module.params["submission_id"]
    spec = {**module.params["defaults"], **(module.params["jobspec"] or {})}
    archive = Archive(archive_path(spec.get("shared_root") or DEFAULT_SHARED_ROOT, submission_id))
    before = archive.status().get("state")
    if before is None:
        module.fail_json(
            msg=f"There is no job {submission_id!r} in {archive.path.parent}. status.yml shows the last ones."
        )
    result = {"submission_id": submission_id, "archive": str(archive.path)}
    if before in ENDED:
        module.exit_json(changed=False, state=before, **result)
    if not module.check_mode:
        try:
            stop(archive)
        except Exception as error:
            module.fail_json(
                msg=f"{submission_id} could not be stopped: {error}. Is the cluster up? See cluster_status.yml."
            )
        deadline = time.monotonic() + STOP_SECONDS
        while archive.status()["state"] not in ENDED:
            if time.monotonic() > deadline:
                module.fail_json(msg=f"{submission_id} still runs {STOP_SECONDS} s after it was told to stop.")
            time.sleep(0.2)
    # It may have ended by itself at the same moment.
    after = STOPPED if module.check_mode else archive.status()["state"]
    module.exit_json(changed=True, state=after, diff={"before": f"{before}\n", "after": f"{after}\n"}, **result)


def stop(archive: Archive) -> None:
    """Tell whoever holds the job to end it; where nobody does, write down its end."""
    archive.ask_to_stop()
    plan = archive.plan() or Plan()
    identifier = attempts.ray_id(archive.submission_id, attempts.current(archive))
    job = RayHead(plan.address, os.environ.get("RAY_AUTH_TOKEN_PATH", "")).job(identifier)
    if job and job["status"] == "RUNNING":
        JobSubmissionClient(plan.address).stop_job(identifier)
    elif job and job["status"] == "PENDING":
        attempts.cancel_pending(identifier)
    if archive.is_kept():
        return
    if not job or job["status"] != "RUNNING":
        attempts.record_end(archive, STOPPED, failures.failure("stopped", "stopped while nobody kept it"))
    archive.run_launcher("keep")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["submitted", "stopped"], "default": "submitted"},
            "submission_id": {"type": "str"},
            "file": {"type": "str"},
            "defaults": {"type": "dict", "default": {}},
            "given": {"type": "dict"},
            "findings": {"type": "list", "elements": "dict", "default": []},
            "secret_values": {"type": "dict", "default": {}, "no_log": True},
            "resubmitted_from": {"type": "str"},
            "resume_from": {"type": "str"},
            "wait": {"type": "bool", "default": False},
            "jobspec": {"type": "dict", "options": OPTIONS},
        },
        required_if=[("state", "stopped", ["submission_id"]), ("state", "submitted", ["jobspec"])],
        supports_check_mode=True,
    )
    if RAY_ERROR:
        module.fail_json(msg=missing_required_lib("ray[default]"), exception=RAY_ERROR)
    submitted(module) if module.params["state"] == "submitted" else stopped(module)


if __name__ == "__main__":
    main()
