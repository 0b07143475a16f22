#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_cluster_info
short_description: Return information about a Ray cluster
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Asks the head of a Ray cluster for its nodes and its jobs.
  - With O(expected), waits until the cluster is ready, which means that every expected node is alive with the expected
    CPUs, GPUs and resources. It returns the nodes that are missing and does not fail, so that their logs can be read.
  - Runs C(argus nodes) in the head, from its machine. No module is sent, and the machine needs no Python.
  - If the head does not answer, the module does not fail, and RV(problem) has the reason.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  expected:
    description: The nodes of the ready cluster.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The node's name, as passed to C(ray start --node-name).
        type: str
        required: true
      head:
        description: Whether this is the head.
        type: bool
        default: false
      cpus:
        description: The CPUs that the node offers to Ray. By default, any number.
        type: float
      gpus:
        description: The GPUs that the node offers to Ray, logical ones included.
        type: float
        default: 0
      resources:
        description: Custom resources that the node offers, with their amounts.
        type: dict
        default: {}
      since:
        description:
          - When the node's container was started, in seconds since the epoch by the node's own clock. A node that
            started earlier does not count, because Ray reports a killed node as alive for a while. By default, any
            time.
        type: float
      absent:
        description: Why the node cannot come. It is then not waited for, and this is the reason in its row.
        type: str
        default: ""
  plan:
    description:
      - The result of M(argus.verl.cluster_plan), whose nodes are expected in place of O(expected), with what the role
        C(ray_node) has registered of their start.
    type: dict
  show:
    description:
      - With O(plan), whether to show the cluster - always, or only if no node is missing. If too few nodes are ready,
        the task then fails, and shows the end of the logs that the role C(ray_node) has read.
    type: str
    choices: [never, ready, always]
    default: never
  dashboard:
    description: Where the dashboard is, for O(show).
    type: str
    default: ""
  least:
    description: How many workers are enough, for O(show). By default, all.
    type: int
  wait_timeout:
    description: How many seconds to wait for the next node of O(expected). With V(0), the head is asked once.
    type: float
    default: 0
  earlier:
    description: The result of an earlier call. What is waited for in several calls is counted in all of them.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Wait until the cluster is ready
  argus.verl.ray_cluster_info:
    expected:
      - {name: mvp-ray-head, head: true, cpus: 0}
      - {name: mvp-ray-worker-0, cpus: 48, gpus: 4, resources: {worker_node: 100}}
    wait_timeout: 120
  register: cluster

- name: Show the jobs that run
  ansible.builtin.debug:
    msg: "{{ cluster.jobs | map(attribute='submission_id') }}"
"""

RETURN = r"""
complete:
  description: Whether the cluster is ready, that is, every node of O(expected) is alive and as expected.
  type: bool
  returned: always
missing:
  description: The names of the expected nodes that are not alive, or not as expected.
  type: list
  elements: str
  returned: always
awaited:
  description: Those of RV(missing) that may still come. The module stops to wait when there are none.
  type: list
  elements: str
  returned: always
rows:
  description:
    - One row for every expected node - its name, its expected resources, those that Ray reports or why there are none,
      and C(alive), C(draining), C(differs) or C(missing).
  type: list
  elements: list
  returned: always
began:
  description: When the module began to wait, in seconds since the epoch by the controller's clock.
  type: float
  returned: always
waited:
  description: How many seconds the nodes were waited for since RV(began).
  type: float
  returned: always
problem:
  description: Why the head did not answer the last time, or an empty string.
  type: str
  returned: always
slow:
  description: How many seconds the head needed, if it did not answer the first attempt. Otherwise 0.
  type: float
  returned: always
nodes:
  description:
    - All nodes that the head knows, dead ones included, as Ray's state API returns them. C(draining) is true for those
      that get no new work. Without O(wait_timeout), C(jobs) has the ids of the jobs on a node, and C(free) what Ray
      counted as free on a worker.
  type: list
  elements: dict
  returned: always
bad_nodes:
  description: The nodes that were lost under two jobs or more within a day, by name, with the ids of these jobs.
  type: dict
  returned: always
jobs:
  description: The jobs that have not ended.
  type: list
  elements: dict
  returned: always
  contains:
    submission_id:
      description: The job's id.
      type: str
    status:
      description: C(PENDING) or C(RUNNING).
      type: str
"""
