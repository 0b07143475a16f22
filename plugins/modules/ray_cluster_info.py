#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_cluster_info
short_description: What a Ray head sees, and whether that is the whole cluster
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Asks the head of a Ray cluster for its nodes and its jobs.
  - With O(expected), waits until every expected node is alive with the CPUs, GPUs and resources expected of it,
    and says which are not. It does not fail when some are missing, so that their logs can still be read.
  - Needs neither Ray nor any other package on the host it runs on, which is the one where the head's
    dashboard listens on the loopback.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  address:
    description: The head's dashboard and Jobs API, as this host reaches it.
    type: str
    default: http://127.0.0.1:8265
  token_path:
    description: A file on this host that holds the cluster's token.
    type: path
  expected:
    description: The nodes that make the whole cluster.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The node's name, as given to C(ray start --node-name).
        type: str
        required: true
      head:
        description: Whether this is the head.
        type: bool
        default: false
      cpus:
        description: The CPUs that the node offers to Ray. Any number if not given.
        type: float
      gpus:
        description: The GPUs that the node offers to Ray, logical ones included.
        type: float
        default: 0
      resources:
        description: Custom resources and how much of each the node offers.
        type: dict
        default: {}
      since:
        description:
          - When what runs the node was started, in seconds since the epoch by the node's own clock. Ray may hold a node
            for alive that died before. Any time if not given.
        type: float
  wait_timeout:
    description: How many seconds to wait for O(expected). With V(0) it looks once.
    type: float
    default: 0
  shared_root:
    description: The shared root as this host sees it, for RV(unkept). Without it, nobody looks.
    type: path
"""

EXAMPLES = r"""
- name: Wait until the cluster is whole
  argus.verl.ray_cluster_info:
    token_path: /var/lib/argus-verl/mvp/auth_token
    expected:
      - {name: mvp-ray-head, head: true, cpus: 0}
      - {name: mvp-ray-worker-0, cpus: 48, gpus: 4, resources: {worker_node: 100}}
    wait_timeout: 120
  register: cluster

- name: Name the jobs that run
  ansible.builtin.debug:
    msg: "{{ cluster.jobs | map(attribute='submission_id') }}"
"""

RETURN = r"""
complete:
  description: Whether every expected node is alive with what was expected of it.
  type: bool
  returned: always
missing:
  description: The names of the expected nodes that are not alive, or not as expected.
  type: list
  elements: str
  returned: always
rows:
  description:
    - One row for every expected node - its name, what was expected, what is seen, and C(alive), C(differs) or
      C(missing).
  type: list
  elements: list
  returned: always
waited:
  description: For how many seconds it waited.
  type: float
  returned: always
problem:
  description: Why the head could not be asked the last time, or an empty string.
  type: str
  returned: always
nodes:
  description: All nodes that the head knows, dead ones included, as Ray's state API gives them.
  type: list
  elements: dict
  returned: always
unkept:
  description:
    - Jobs on O(shared_root) that are not closed, and whose keeper has given no sign of life for a minute, or none since
      the head was started. M(argus.verl.job_keepers) takes them up.
  type: list
  elements: str
  returned: always
jobs:
  description: The jobs that have not ended.
  type: list
  elements: dict
  returned: always
  contains:
    submission_id:
      description: The job's id.
      type: str
    status:
      description: C(PENDING) or C(RUNNING).
      type: str
"""

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.readiness import wait_for_membership
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import ENDED, SILENT_SECONDS, unclosed
from ansible_collections.argus.verl.plugins.module_utils.launcher.ray_api import RayApiError, RayHead


def unkept(shared_root: str | None, expected: list[dict[str, Any]]) -> list[str]:
    """Jobs that are not closed, and whose keeper gives no sign of life or gave its last before the head was started."""
    started = max((node["since"] or 0 for node in expected if node["head"]), default=0)
    oldest = max(started, time.time() - SILENT_SECONDS)
    signs = unclosed(Path(shared_root) / "jobs") if shared_root else {}
    return [submission_id for submission_id, sign in signs.items() if float(sign.get("time", 0)) < oldest]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "default": "http://127.0.0.1:8265"},
            "token_path": {"type": "path", "no_log": False},
            "expected": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "head": {"type": "bool", "default": False},
                    "cpus": {"type": "float"},
                    "gpus": {"type": "float", "default": 0},
                    "resources": {"type": "dict", "default": {}},
                    "since": {"type": "float"},
                },
            },
            "wait_timeout": {"type": "float", "default": 0},
            "shared_root": {"type": "path"},
        },
        supports_check_mode=True,
    )
    head = RayHead(module.params["address"], module.params["token_path"] or "")
    seen, waited, problem = wait_for_membership(head, module.params["expected"], module.params["wait_timeout"])
    nodes, jobs = [], []
    try:
        nodes, jobs = head.nodes(), head.jobs()
    except RayApiError as error:
        problem = str(error)
    module.exit_json(
        changed=False,
        unkept=unkept(module.params["shared_root"], module.params["expected"]),
        complete=seen.complete and not problem,
        missing=seen.missing,
        rows=seen.rows,
        waited=round(waited, 1),
        problem=problem,
        nodes=nodes,
        jobs=[
            {"submission_id": job["submission_id"], "status": job["status"]}
            for job in jobs
            if job["status"] not in ENDED
        ],
    )


if __name__ == "__main__":
    main()
