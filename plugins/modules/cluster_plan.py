#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_plan
short_description: "Internal: plan a cluster"
version_added: 0.2.0
author: The argus.verl contributors (@argus-verl)
description:
  - Decides once, from all hosts, what each node and each machine needs. Later tasks take their part of the result, by
    the name of the node or of the host that represents a machine.
  - Reads the variables of all nodes and checks them with the argument specs of the roles C(cluster) and C(ray_node). A
    variable of the play counts for nodes whose inventory does not set it.
  - A node that cannot take part does not fail the task. Its plan has the reason.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  probes:
    description: The variable in which the results of M(argus.verl.machine_info) are registered.
    type: str
    required: true
  derived:
    description: The variables of NCCL and gloo that follow from all machines, by host.
    type: dict
    default: {}
  builds:
    description: How images are built, by name, each with the hash of its C(inputs).
    type: dict
    default: {}
  failures:
    description:
      - Variables in which a run has registered what it did on a machine after it was probed. Where one has failed, the
        nodes of the machine cannot take part.
    type: list
    elements: str
    default: []
  nodes:
    description: The nodes of the run. By default, the hosts of the play.
    type: list
    elements: str
  remedy:
    description: What to do where too few nodes can take part.
    type: str
    default: repair it, or correct the inventory
  is_checked:
    description: Whether a machine with errors of preflight keeps its nodes from taking part.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Plan the cluster
  argus.verl.cluster_plan:
    probes: probed
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
findings:
  description: Why the run must not change anything, such as too few nodes that can take part.
  type: list
  elements: dict
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
