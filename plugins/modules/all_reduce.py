#!/usr/bin/python

# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: all_reduce
short_description: Measure an all-reduce over the workers of a running cluster
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - Runs on the head. Reduces a tensor over all workers through Ray, with NCCL on all GPUs, or with gloo on CPUs.
  - If that fails or is slow, measures pairs and halves, and names the worker that is to blame.
  - Waits 15 seconds for the resources of the workers. If jobs use them, nothing is measured.
requirements:
  - Ray and torch on the nodes
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
    details:
      - This module does not modify state.
  diff_mode:
    support: none
    details:
      - This module does not modify state.
options:
  workers:
    description:
      - The names of all workers. Those that Ray does not list are returned in RV(absent).
    type: list
    elements: str
    default: []
  mib:
    description:
      - The size of the tensor in MiB.
    type: int
    default: 64
  floor:
    description:
      - The bus bandwidth in GB/s below which workers are slow. With V(0), workers are only compared with each other.
    type: float
    default: 0
"""

EXAMPLES = r"""
- name: Measure
  argus.verl.all_reduce:
    workers: "{{ groups.workers }}"
    floor: 100
  delegate_to: "{{ groups.head[0] }}"
  run_once: true
"""

RETURN = r"""
absent:
  description: Those of O(workers) that Ray does not list.
  returned: if Ray answered
  type: list
  elements: str
skipped:
  description: Why nothing was measured.
  returned: if nothing was measured
  type: str
whole:
  description: The bus bandwidth over all workers in GB/s, null with an error if it failed.
  returned: if it was measured
  type: dict
  sample: {bandwidth: 381.2, error: ""}
measured:
  description: The same for smaller groups, and the error of each worker that did not answer.
  returned: if it was measured
  type: list
  elements: dict
bad:
  description: Workers that do not answer, or fail or are slow together with one that is fine.
  returned: if it was measured
  type: list
  elements: str
links:
  description: Pairs of workers that fail or are slow, and are fine with others.
  returned: if it was measured
  type: list
  elements: list
group:
  description: A group that fails or is slow although its parts are fine.
  returned: if it was measured
  type: list
  elements: str
usual:
  description: The bus bandwidth of most pairs.
  returned: if it was measured
  type: float
backend:
  description: V(nccl) or V(gloo).
  returned: if it was measured
  type: str
processes:
  description: The number of processes over all workers.
  returned: if it was measured
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.network.all_reduce import all_reduce
from ansible_collections.argus.verl.plugins.module_utils.node_environment import enter_node


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "workers": {"type": "list", "elements": "str", "default": []},
            "mib": {"type": "int", "default": 64},
            "floor": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    enter_node(module.fail_json)
    asked = module.params
    module.exit_json(**all_reduce(asked["mib"], asked["floor"], asked["workers"]))


if __name__ == "__main__":
    main()
