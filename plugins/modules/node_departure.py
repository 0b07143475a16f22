#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: node_departure
short_description: "Internal: find out how a node leaves its cluster"
version_added: 0.2.0
author: The argus.verl contributors (@argus-verl)
description:
  - Finds the machine that has a node, and what Ray knows of it. Shows why the node cannot be taken out, and fails then.
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
  worker:
    description: The name of the node.
    type: str
    default: ""
  plan:
    description: The result of M(argus.verl.cluster_plan).
    type: dict
    required: true
  machine:
    description: The host that has the node, if that is not in the inventory.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Find the node
  argus.verl.node_departure:
    worker: mvp-ray-worker-1
    plan: "{{ plan }}"
  register: leaving
"""

RETURN = r"""
node:
  description: The name of the node.
  type: str
  returned: always
machine:
  description: The host that represents its machine.
  type: str
  returned: always
machine_name:
  description: The machine, as messages name it.
  type: str
  returned: always
node_id:
  description: Ray's id of the node. An empty string if Ray does not have it alive.
  type: str
  returned: always
runs:
  description: Whether it runs on the machine.
  type: bool
  returned: always
last:
  description: Whether nothing else of the cluster is on the machine.
  type: bool
  returned: always
in_inventory:
  description: Whether it is in the inventory.
  type: bool
  returned: always
gone:
  description: Whether nothing is left that could be taken out.
  type: bool
  returned: always
"""
