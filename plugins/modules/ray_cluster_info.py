#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_cluster_info
short_description: "Internal: return information about a Ray cluster"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Asks the head of a Ray cluster for its nodes and its jobs.
  - With O(expected), waits until the cluster is ready - every expected node is alive, with the expected CPUs, GPUs and
    resources. Returns the nodes that are missing, and does not fail, so that their logs can be read.
  - Runs C(argus nodes) in the head, from its machine. No module is sent, and the machine needs no Python.
  - If the head does not answer, the module does not fail, and the result has the reason in C(problem).
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
  - argus.verl.node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  expected:
    description: The nodes that the cluster should have.
    type: list
    elements: dict
    default: []
  plan:
    description:
      - The result of M(argus.verl.cluster_plan). Its nodes are expected, in place of O(expected). What the role
        C(ray_node) has registered of their start is read as well.
    type: dict
  show:
    description:
      - With O(plan), whether to show the cluster - always, or only if no node is missing. If too few nodes are ready,
        the task then fails, and shows the end of the logs that the role C(ray_node) has read.
    type: str
    choices: [never, ready, always]
    default: never
  dashboard:
    description: The address of the dashboard, for O(show).
    type: str
    default: ""
  least:
    description: The least number of workers, for O(show). By default, all.
    type: int
  wait_timeout:
    description: How many seconds to wait for the next node that is missing. With V(0), the head is asked once.
    type: float
    default: 0
  earlier:
    description: The result of an earlier call. Waiting then continues, and its time adds up over all calls.
    type: dict
    default: {}
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
