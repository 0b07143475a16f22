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
  - Decides once, from all hosts, what each node and each machine needs. Later tasks take their part of the result, by
    the name of the node or of the host that represents a machine.
  - Reads the variables of all nodes and checks them with the argument specs of the roles C(cluster) and C(ray_node). A
    variable of the play counts for nodes whose inventory does not set it.
  - Reads what was registered on all hosts, the results of M(argus.verl.machine_info) as C(__preflight).
  - A node that cannot take part has the reason in its plan. Whether the task fails then depends on O(purpose).
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
      - V(change) fails also if an action ends a node in use, unless O(allowed), and shows the actions. V(remove) does
        so for the removal of the cluster, and shows nodes that stay. Both ask the head for its jobs. If it cannot list
        them, jobs whose archives are open count.
      - With V(start), V(prepare) and V(change), a machine with errors of preflight keeps its nodes from taking part.
    type: str
    choices: [inspect, start, prepare, change, remove]
    default: inspect
  allowed:
    description: Whether jobs may be ended.
    type: bool
    default: false
  builds:
    description: How images are built, by name, each with the hash of its C(inputs).
    type: dict
    default: {}
  nodes:
    description: The nodes of the run. By default, the hosts of the play.
    type: list
    elements: str
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
