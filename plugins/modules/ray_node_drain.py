#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_node_drain
short_description: "Internal: drain a Ray node and wait until no job uses it"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - With O(state=located), returns the machine of a node, its state in Ray and its O(node_id). Changes nothing. Fails,
    with the reason, if the node cannot be drained.
  - With O(state=drained), runs C(argus drain) in the head, from its machine. Ray then places nothing on the node any
    more, and the node exits when idle. A drain cannot be undone. In check mode, nothing is drained.
  - Before a drain, the caller must set the restart policy of the node's container to V(no), as the role C(ray_node)
    does, so that the engine does not start the node again.
  - A drain waits until no job has a driver, an actor or reserved resources on the node, for O(wait_timeout) at most. It
    shows the jobs that are left at first, and whenever they change. If jobs are left in the end, the task fails, but
    the node stays drained. With O(allow_disruption), it does not wait, and jobs that are left are only shown.
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
  state:
    description: V(located) finds the node and checks whether it can be drained. V(drained) drains it.
    type: str
    choices: [located, drained]
    default: drained
  node_name:
    description: The name of the node that leaves. Required. The head, in which the command runs, is O(node).
    type: str
    default: ""
  plan:
    description: The result of M(argus.verl.cluster_plan). Required with O(state=located).
    type: dict
  node_id:
    description: Ray's id of the node, as O(state=located) returns it. Required with O(state=drained).
    type: str
    default: ""
  wait_timeout:
    description: With O(state=drained), the seconds to wait for jobs. With V(0), it fails at once if jobs are left.
    type: float
    default: 0
  allow_disruption:
    description: Drain the node although jobs still use it; those jobs fail, and the head records which.
    type: bool
    default: false
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
