#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_node_drain
short_description: "Internal: find out how a node leaves its cluster, and wait for its jobs"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - With O(state=planned), finds the machine that has a node, and what Ray knows of it. Shows why the node cannot be
    taken out, and fails then.
  - With O(state=drained), runs C(argus drain) in the head, from its machine. Ray places nothing on the worker any more.
    Without work it ends by itself, so nothing may start it again - its container needs another restart policy before.
    There is no way back for a worker that runs.
  - Waits until no job has a driver, an actor or reserved resources on it, and shows for which jobs, at the beginning
    and at each change. Fails if jobs are left, unless O(ends_jobs).
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
    description: Whether to plan how the node leaves, or to drain it.
    type: str
    choices: [planned, drained]
    default: drained
  worker:
    description: The name of the node that leaves.
    type: str
    default: ""
  plan:
    description: The result of M(argus.verl.cluster_plan). Required with O(state=planned).
    type: dict
  node_id:
    description: With O(state=drained), Ray's id of the node.
    type: str
    default: ""
  wait_timeout:
    description: How many seconds to wait for the jobs.
    type: float
    default: 0
  ends_jobs:
    description:
      - Whether it is removed although jobs use it. The head remembers which ones, so that they can tell why they have
        ended.
    type: bool
    default: false
"""

EXAMPLES = "# Internal: the roles of the collection have its tasks.\n"
