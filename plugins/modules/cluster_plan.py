#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_plan
short_description: "Internal: plan a cluster, and refuse what must not begin"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Decides once, from all hosts, what each node and each machine needs. Later tasks read their part of the result, by
    the name of a node, or of the host that represents a machine.
  - Reads the variables of all nodes and checks them with the argument specs of the roles C(cluster) and C(ray_node). A
    variable of the play counts for nodes whose inventory does not set it.
  - Reads what tasks registered on all hosts, such as the results of M(argus.verl.machine_info) in C(__preflight).
  - The plan of a node that cannot take part has the reason. O(purpose) decides whether the task then fails.
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
  purpose:
    description:
      - What the plan is for. V(inspect) and V(start) refuse nothing. V(prepare) and V(change) fail if too few nodes can
        take part.
      - V(change) shows the actions. It also fails if one of them ends a node that a job uses, unless O(allowed).
        V(remove) does the same for the removal of the cluster, and shows nodes that stay. Both ask the head for its
        jobs. If the head cannot list them, jobs with an open archive count.
      - With V(start), V(prepare) and V(change), nodes on a machine with errors of preflight cannot take part.
    type: str
    choices: [inspect, start, prepare, change, remove]
    default: inspect
  allowed:
    description: Whether running jobs may be ended.
    type: bool
    default: false
  builds:
    description: By image, how it is built, with the hash of its C(inputs).
    type: dict
    default: {}
  nodes:
    description: The nodes of the run. By default, the hosts of the play.
    type: list
    elements: str
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
