#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_job_info
short_description: Return information about training jobs, and show them or their logs
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Reads the job's archive, and asks the head for what is not in the archive, such as why a job is still pending.
  - If the head does not answer, the result comes from the archives alone, and RV(problem) has the reason.
  - Runs C(argus status) in the node, from its machine. No module is sent, and the machine needs no Python.
  - If the node does not run, a container of O(node.images) reads the archives, without a network.
  - Archives are read as the user of the nodes, never as root. Jobs can write to archives. What cannot be parsed there
    is reported as unreadable, and never hides other jobs.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
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
  tags:
    description:
      - List only jobs that have all of these tags. Values are compared as text.
      - Reads every archive. O(limit) counts the jobs with the tags.
    type: dict
    default: {}
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
  rank:
    description:
      - If set, RV(job.log) has only lines of this rank of torch. They are the last O(tail) ones, or all with V(0), of
        the last 8 MiB of the log; with O(log_position), those after this position.
      - Lines of torchrun's processes have a rank, and some messages of torch and verl. Lines of Ray have none.
    type: str
    default: ""
  attempt:
    description:
      - If set, RV(job.log) has only lines of this attempt. V(0) stands for all attempts. Cannot be used with
        O(log_position) or O(show=follow).
    type: int
    default: 0
  first_errors:
    description:
      - If true, RV(job.log) has the first error of each process in the last 8 MiB of the log, in the order in which
        they appear. The first one has its traceback. Errors that the program has handled count as well.
    type: bool
    default: false
  show:
    description:
      - What is printed on the controller. V(status) is the status of the job, or a table of jobs. V(json) is this
        result as one line. V(log) has the last O(tail) lines of the driver's log. V(follow) then prints new lines as
        they appear, until the job has ended, and does not fail if the job fails. V(shell) is the command that opens a
        shell with the environment of a running job.
    type: str
    choices: [nothing, status, json, log, follow, shell]
    default: nothing
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

- name: List the latest jobs of a team
  argus.verl.ray_job_info:
    tags: {team: a}
  register: listed

- name: Show the end of a job's log
  argus.verl.ray_job_info:
    submission_id: grpo-20260101-120000-1a2b
    tail: 20
    show: log

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
      description: What the job waits for, according to its steward, or that it has none; otherwise an empty string.
      type: str
    unattended:
      description:
        - Whether neither a steward nor a launcher looks after a job that has not ended, as after a restart of its head.
      type: bool
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
          and in C(resumed_from) the step that it resumed from, and its C(phases).
      type: list
      elements: dict
    warnings:
      description:
        - Why the job may look better than it is. Each warning has C(kind), C(text), the C(count) of samples, prompts or
          steps that it is about, and in C(of) their total; 0 if unknown. docs/warnings.md lists the kinds.
      type: list
      elements: dict
    phases:
      description: How many seconds each phase of the start of the current attempt took. Only phases that are over.
      type: dict
    phase:
      description: What a running job does before its first step, as far as its log tells; otherwise an empty string.
      type: str
    submitted_at:
      description: When the archive was created, in seconds since the epoch.
      type: float
    submitted_by:
      description: The user and the controller that submitted the job, as the controller says, such as C(alice@laptop).
      type: str
    started_at:
      description: When the launcher of the first attempt started, in seconds since the epoch.
      type: float
    ended_at:
      description: When the last attempt ended, in seconds since the epoch. Not set before the job has ended.
      type: float
    place:
      description: The place in the queue of the cluster, from 1. Null if the job does not wait for room.
      type: int
    silent_for:
      description: For a running job, the seconds since its launcher's last heartbeat, which comes every 2 seconds.
      type: float
    time_left:
      description:
        - For a running job, the estimated seconds to its end, from its pace since the first step. Not set while the
          launcher's heartbeat is older than 10 seconds.
      type: float
    gpu_percent:
      description: The utilization of the GPUs of a running job in percent, on average over two minutes.
      type: float
    address:
      description: The URL of the job's server once it answers; see C(ready) of a JobSpec.
      type: str
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
      description:
        - C(step), C(total_steps), the C(first) and C(last) value of the job's key C(metric), and in C(trend) values up
          to the last one.
        - C(tokens_per_second_per_gpu) of the last step, which verl measures for PPO and GRPO; C(tokens_per_second) of
          all GPUs together for SFT, from the tokens of the last steps and the pace since the first one.
        - C(seconds) of the parts of the last step, by verl's names, such as C(gen), C(update_actor) and
          C(update_weights). Empty for SFT.
        - C(validation) of V(eval), by verl's names.
      type: dict
    checkpoints:
      description:
        - The steps that have a complete checkpoint. Empty in a list of jobs, and with O(wait_timeout) until the job has
          ended.
      type: list
      elements: int
    models:
      description: The steps of checkpoints without the optimizer (C(save_contents)), from which no job can resume.
      type: list
      elements: int
    resumable:
      description:
        - The step of the last complete checkpoint of a job that has failed or was stopped. Not set without one.
      type: int
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
    root_problem:
      description: Why nothing can be written to the shared root, as this host sees it, or an empty string.
      type: str
    written_at:
      description: When a process of the job last wrote to the archive, in seconds since the epoch.
      type: float
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
    head_away_for:
      description: For how many seconds the head has been away; null if it answers, or never looked after the job.
      type: float
jobs:
  description: The latest jobs, the newest first, each as RV(job) but without log and JobSpec.
  type: list
  elements: dict
  returned: without O(submission_id)
total:
  description: The total number of jobs, or of those with O(tags).
  type: int
  returned: without O(submission_id)
root_problem:
  description: Why nothing can be written to the shared root, as this host sees it, or an empty string.
  type: str
  returned: without O(submission_id)
tags:
  description: The given O(tags).
  type: dict
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
registered:
  description: Whether the cluster has a record of the job, so that it can be submitted again.
  type: bool
  returned: with O(submission_id)
slow:
  description: How many seconds the head needed to answer, if it did not answer the first attempt. Otherwise 0.
  type: float
  returned: always
"""
