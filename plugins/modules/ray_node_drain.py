#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_node_drain
short_description: "Internal: let a node of Ray get no new work, and wait for its jobs"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs C(argus drain) in the head, from its machine. Ray places nothing on the worker any more. Without work it ends
    by itself, so nothing may start it again - its container needs another restart policy before. There is no way back
    for a worker that runs.
  - Waits until no job has a driver, an actor or reserved resources on it, and shows for which jobs, at the beginning
    and at each change. Does not fail if jobs are left.
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
    description: The name of the node that gets no new work.
    type: str
    required: true
  node_id:
    description: Ray's id of it.
    type: str
    required: true
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

EXAMPLES = r"""
- name: Take a node out, and wait an hour for its jobs
  argus.verl.ray_node_drain:
    worker: gpu-1
    node_id: e50acf0b4cdc0050a232817375d1e7b24e7b79ac443b44b54bf7d9e0
    wait_timeout: 3600
"""

RETURN = r"""
jobs:
  description: The jobs that use the worker, by submission id.
  type: list
  elements: str
  returned: success
alive:
  description: Whether Ray still has the worker.
  type: bool
  returned: success
findings:
  description: The jobs that still use the worker - errors, or warnings if they may be ended.
  type: list
  elements: dict
  returned: success
waited:
  description: How many seconds were waited.
  type: float
  returned: success
"""
