#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ray_cluster_info
short_description: Return information about a Ray cluster
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Asks the head of a Ray cluster for its nodes and its jobs.
  - With O(expected), waits until the cluster is ready, which means that every expected node is alive with the expected
    CPUs, GPUs and resources. It returns the nodes that are missing and does not fail, so that their logs can be read.
  - Runs on the host where the head's dashboard listens on the loopback. That host needs neither Ray nor any other
    package.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  address:
    description: The address of the head's dashboard and Jobs API on this host.
    type: str
    default: http://127.0.0.1:8265
  token_path:
    description: The file on this host with the cluster's token.
    type: path
  expected:
    description: The nodes of the ready cluster.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The node's name, as passed to C(ray start --node-name).
        type: str
        required: true
      head:
        description: Whether this is the head.
        type: bool
        default: false
      cpus:
        description: The CPUs that the node offers to Ray. By default, any number.
        type: float
      gpus:
        description: The GPUs that the node offers to Ray, logical ones included.
        type: float
        default: 0
      resources:
        description: Custom resources that the node offers, with their amounts.
        type: dict
        default: {}
      since:
        description:
          - When the node's container was started, in seconds since the epoch by the node's own clock. A node that
            started earlier does not count, because Ray reports a killed node as alive for a while. By default, any
            time.
        type: float
      absent:
        description: Why the node cannot come. It is then not waited for, and this is the reason in its row.
        type: str
        default: ""
  wait_timeout:
    description: How many seconds to wait for O(expected). With V(0), the head is asked once.
    type: float
    default: 0
  began:
    description:
      - When an earlier call began to wait, which is its RV(began). What is waited for in several calls is counted in
        all of them. By default, now.
    type: float
  shared_root:
    description: The path of the shared root on this host, for RV(unattended). Without it, no jobs are checked.
    type: path
  registry:
    description:
      - The directory on this host that records which jobs the cluster has submitted, for RV(unattended), and which
        nodes get no new work.
    type: path
  cluster:
    description: The name of the cluster, for RV(unknown).
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Wait until the cluster is ready
  argus.verl.ray_cluster_info:
    token_path: /var/lib/argus-verl/mvp/auth_token
    expected:
      - {name: mvp-ray-head, head: true, cpus: 0}
      - {name: mvp-ray-worker-0, cpus: 48, gpus: 4, resources: {worker_node: 100}}
    wait_timeout: 120
  register: cluster

- name: Show the jobs that run
  ansible.builtin.debug:
    msg: "{{ cluster.jobs | map(attribute='submission_id') }}"
"""

RETURN = r"""
complete:
  description: Whether the cluster is ready, that is, every node of O(expected) is alive and as expected.
  type: bool
  returned: always
missing:
  description: The names of the expected nodes that are not alive, or not as expected.
  type: list
  elements: str
  returned: always
awaited:
  description: Those of RV(missing) that may still come. The module stops to wait when there are none.
  type: list
  elements: str
  returned: always
rows:
  description:
    - One row for every expected node - its name, its expected resources, those that Ray reports or why there are none,
      and C(alive), C(draining), C(differs) or C(missing).
  type: list
  elements: list
  returned: always
began:
  description: When the module began to wait, in seconds since the epoch by this host's clock, or O(began).
  type: float
  returned: always
waited:
  description: How many seconds the nodes were waited for since RV(began).
  type: float
  returned: always
problem:
  description: Why the head did not answer the last time, or an empty string.
  type: str
  returned: always
slow:
  description: How many seconds the head needed, if it did not answer the first attempt. Otherwise 0.
  type: float
  returned: always
nodes:
  description:
    - All nodes that the head knows, dead ones included, as Ray's state API returns them. C(draining) is true for those
      that get no new work.
  type: list
  elements: dict
  returned: always
unattended:
  description:
    - Jobs of O(registry) whose archives on O(shared_root) are not closed, and whose steward has sent no heartbeat for a
      minute, or none since the head was started. C(cluster_up.yml) starts stewards for them.
  type: list
  elements: str
  returned: always
unknown:
  description: The same for archives that name this head, and are not in O(registry). Any job could have written them.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import JOBS
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.registry import Registry
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.unattended import Unattended, unattended
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.admission import REGISTRY
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import SILENT_SECONDS
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.ray_api import (
    PATIENCE_SECONDS,
    RayApiError,
    RayHead,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.status import ENDED
from ansible_collections.argus.verl.plugins.module_utils.cluster.membership import ExpectedNode
from ansible_collections.argus.verl.plugins.module_utils.cluster.readiness import exposure, wait_until_ready
from ansible_collections.argus.verl.plugins.module_utils.privileges import without_root


def unattended_jobs(module: AnsibleModule, expected: Sequence[ExpectedNode]) -> Unattended:
    """The jobs without a steward. An archive that cannot be read must not fail a cluster."""
    shared_root, registry, cluster = (module.params[name] for name in ("shared_root", "registry", "cluster"))
    if not shared_root or not registry:
        return Unattended()
    # A steward from before this head is gone.
    started = max((node.since or 0 for node in expected if node.head), default=0)
    oldest = max(started, time.time() - SILENT_SECONDS)
    head = next((node.name for node in expected if node.head), "")
    # The names only: the directory is the cluster's, and its entries are those of the nodes' user.
    registered = set(Registry(registry).ids())
    jobs = Path(shared_root) / JOBS
    result = without_root(Path(shared_root), lambda: unattended(jobs, registered, head, oldest, cluster).to_json())
    if result.get("failed"):
        module.warn(f"The jobs in {shared_root} were not checked: {result['msg']}")
        return Unattended()
    return Unattended(tuple(map(str, result["unattended"])), tuple(map(str, result["unknown"])))


def head_of(params: dict[str, Any]) -> RayHead:
    # Waiting is patient already.
    patience = 0 if params["wait_timeout"] else PATIENCE_SECONDS
    registry = params["registry"] or REGISTRY
    return RayHead(params["address"], params["token_path"] or "", patience=patience, registry=registry)


EXPECTED = {
    "name": {"type": "str", "required": True},
    "head": {"type": "bool", "default": False},
    "cpus": {"type": "float"},
    "gpus": {"type": "float", "default": 0},
    "resources": {"type": "dict", "default": {}},
    "since": {"type": "float"},
    "absent": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "default": "http://127.0.0.1:8265"},
            "token_path": {"type": "path", "no_log": False},
            "expected": {"type": "list", "elements": "dict", "default": [], "options": EXPECTED},
            "wait_timeout": {"type": "float", "default": 0},
            "began": {"type": "float"},
            "shared_root": {"type": "path"},
            "registry": {"type": "path"},
            "cluster": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    head = head_of(module.params)
    expected = [ExpectedNode.from_json(node) for node in module.params["expected"]]
    began = module.params["began"] or time.time()
    before = max(time.time() - began, 0)
    readiness = wait_until_ready(head, expected, module.params["wait_timeout"])
    problem = readiness.problem
    # A head whose nodes have just started may need long for its first answer about jobs.
    head.patience = PATIENCE_SECONDS
    nodes, jobs = [], []
    try:
        nodes, jobs = head.nodes(), head.jobs()
    except RayApiError as error:
        problem = str(error)
    if expected and not problem:
        problem = exposure(head.address)
    module.exit_json(
        changed=False,
        **unattended_jobs(module, expected).to_json(),
        complete=readiness.membership.complete and not problem,
        missing=readiness.membership.missing,
        awaited=readiness.membership.awaited,
        rows=[row.to_json() for row in readiness.membership.rows],
        began=began,
        waited=round(before + readiness.waited, 1),
        problem=problem,
        slow=round(head.slow, 1),
        nodes=nodes,
        jobs=[
            {"submission_id": job["submission_id"], "status": job["status"]}
            for job in jobs
            if job["status"] not in ENDED
        ],
    )


if __name__ == "__main__":
    main()
