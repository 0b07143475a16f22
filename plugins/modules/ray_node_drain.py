#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name calls it until the node is free, and shows what is waited for.
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_node_drain
short_description: "Internal: let a node of Ray get no new work, and wait for its jobs"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs on the head. Ray places nothing on the node any more. Without work the node ends by itself, so nothing may
    start it again - its container needs another restart policy before. There is no way back for a node that runs.
  - Waits until no job has a driver, an actor or reserved resources on the node, and shows for which jobs, at the
    beginning and at each change. Does not fail if jobs are left.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  node:
    description: The name of the node.
    type: str
    required: true
  node_id:
    description: Ray's id of the node.
    type: str
    required: true
  address:
    description: The address of the head's dashboard and Jobs API on this host.
    type: str
    default: http://127.0.0.1:8265
  registry:
    description: The directory on the head that keeps which nodes get no new work. By default, that of this head.
    type: path
  wait_timeout:
    description: How many seconds to wait for the jobs.
    type: float
    default: 0
  held_by:
    description: Wait no longer when other jobs than these use the node. By default, wait until none does.
    type: list
    elements: str
  ends_jobs:
    description:
      - Whether the node is removed although jobs use it. The head remembers which ones, so that they can tell why they
        have ended.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Take a node out, and wait an hour for its jobs
  argus.verl.ray_node_drain:
    node: gpu-1
    node_id: e50acf0b4cdc0050a232817375d1e7b24e7b79ac443b44b54bf7d9e0
    wait_timeout: 3600
"""

RETURN = r"""
jobs:
  description: The jobs that use the node, by submission id.
  type: list
  elements: str
  returned: success
alive:
  description: Whether Ray still has the node.
  type: bool
  returned: success
waited:
  description: How many seconds the module waited.
  type: float
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.drain import (
    DrainError,
    is_alive,
    remember_end,
    run_command,
    stop_new_work,
    wait_while_held,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher import draining
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.admission import registry_path
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.ray_api import (
    PATIENCE_SECONDS,
    RayApiError,
    RayHead,
)
from ansible_collections.argus.verl.plugins.module_utils.node_environment import enter_node


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "node_id": {"type": "str", "required": True},
            "address": {"type": "str", "default": "http://127.0.0.1:8265"},
            "registry": {"type": "path"},
            "wait_timeout": {"type": "float", "default": 0},
            "held_by": {"type": "list", "elements": "str"},
            "ends_jobs": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    enter_node(module.fail_json)
    node_id, registry = module.params["node_id"], module.params["registry"] or registry_path()
    token_path = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    head = RayHead(module.params["address"], token_path, patience=PATIENCE_SECONDS, registry=registry)
    timeout = 0 if module.check_mode else module.params["wait_timeout"]
    try:
        already = node_id in draining.draining(registry)
        changed = not already and is_alive(head, node_id)
        if changed and not module.check_mode:
            stop_new_work(node_id, registry, run_command)
            draining.forget_all_but(frozenset(node["node_id"] for node in head.nodes()), registry)
        if module.params["ends_jobs"] and not module.check_mode:
            remember_end(head, node_id, module.params["node"], registry)
        drained = wait_while_held(head, node_id, timeout, module.params["held_by"])
    except (DrainError, RayApiError, OSError) as error:
        module.fail_json(msg=f"the node still gets new work, or its jobs are unknown: {error}")
    else:
        module.exit_json(changed=changed, **drained.to_json())


if __name__ == "__main__":
    main()
