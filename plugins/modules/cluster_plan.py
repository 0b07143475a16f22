#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_plan
short_description: "Internal: plan a cluster, and refuse what must not begin"
version_added: 0.2.0
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

EXAMPLES = r"""
- name: Plan the cluster
  argus.verl.cluster_plan:
    purpose: change
  run_once: true
  register: plan

- name: Show what is done to this node
  ansible.builtin.debug:
    msg: "{{ plan.nodes[inventory_hostname].action }}"
"""

RETURN = r"""
nodes:
  description:
    - The nodes of the run. C(action) is V(keep), V(start), V(create), V(recreate), or V(none) for a node that cannot
      take part, with the reason in C(absent). C(container) has arguments of M(community.docker.docker_container),
      C(podman) those of M(ansible.builtin.command), C(process) those of M(argus.verl.node_process). C(host) represents
      its machine.
  type: dict
  returned: success
machines:
  description:
    - The machines, by the host that represents each, with C(name), C(nodes), C(problem) and whether it C(answers).
      C(user)
      is that of its nodes if they need anything prepared. C(present) and C(running) are the nodes of the cluster on
      it, and
      C(surplus) those that left the inventory.
  type: dict
  returned: success
changes:
  description: Rows of node, action and reason.
  type: list
  elements: list
  returned: success
problem:
  description: Why the head cannot list its jobs, or an empty string.
  type: str
  returned: success
unreached:
  description: Findings about the machines that did not answer.
  type: list
  elements: dict
  returned: success
disrupts:
  description: Whether an action ends a node that runs.
  type: bool
  returned: success
starts:
  description: Whether a node has to be started.
  type: bool
  returned: success
prepares:
  description: Whether a machine has to be prepared.
  type: bool
  returned: success
head_answers:
  description: Whether the machine of the head answers.
  type: bool
  returned: success
head_runs:
  description: Whether the head runs.
  type: bool
  returned: success
"""
