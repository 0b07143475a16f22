#!/usr/bin/python

# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: reachability
short_description: Listen on ports of a machine, and connect to those of others
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - With O(state=listening), listens on all ports that are free, in a process that ends by itself after O(lifetime).
  - With O(state=measured), connects to every port of every target, and returns what became of it.
  - With O(state=closed), ends the process that listens.
  - Nothing is sent over the connections, and nothing remains on the machine.
requirements:
  - Python 3.9 or later on the machine
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
    details:
      - The machine is not modified. The process that listens is part of the measurement.
  diff_mode:
    support: none
    details:
      - This module does not modify state.
options:
  state:
    description:
      - What to do.
    type: str
    choices: [listening, measured, closed]
    required: true
  ports:
    description:
      - The TCP ports. Required with O(state=listening) and O(state=measured).
    type: list
    elements: int
    default: []
  address:
    description:
      - The IPv4 address to listen on.
    type: str
    default: "0.0.0.0"
  lifetime:
    description:
      - After how many seconds the process that listens ends by itself.
    type: int
    default: 120
  targets:
    description:
      - The addresses of other machines, by name.
    type: dict
    default: {}
  first:
    description:
      - With which target to begin, counted from 0. Every machine should begin with another one.
    type: int
    default: 0
  timeout:
    description:
      - How many seconds a connection may take.
    type: float
    default: 3
  process:
    description:
      - The RV(process) that O(state=listening) has returned.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Listen
  argus.verl.reachability:
    state: listening
    ports: [20000, 20010]
  register: listening

- name: Connect to the others
  argus.verl.reachability:
    state: measured
    ports: [20000, 20010]
    targets: {gpu-1: 10.0.0.12}
  register: measured

- name: Stop listening
  argus.verl.reachability:
    state: closed
    process: "{{ listening.process }}"
"""

RETURN = r"""
process:
  description: The process that listens, by its number and start time.
  returned: with O(state=listening)
  type: dict
  sample: {pid: 4711, started: 123456}
listening:
  description: The ports on which it listens.
  returned: with O(state=listening)
  type: list
  elements: int
  sample: [20000]
busy:
  description: The ports on which something listens already.
  returned: with O(state=listening)
  type: list
  elements: int
  sample: [20010]
reached:
  description:
    - For each target, the median time of a connection in milliseconds, or null without one, and the ports that failed,
      by outcome, V(refused), V(timeout) or V(unreachable).
  returned: with O(state=measured)
  type: dict
  sample: {gpu-1: {milliseconds: 0.21, failed: {timeout: [20010]}}}
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.network.background import Background, end
from ansible_collections.argus.verl.plugins.module_utils.network.reach import listen, measure, to_json


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["listening", "measured", "closed"], "required": True},
            "ports": {"type": "list", "elements": "int", "default": []},
            "address": {"type": "str", "default": "0.0.0.0"},  # noqa: S104 - what the nodes listen on
            "lifetime": {"type": "int", "default": 120},
            "targets": {"type": "dict", "default": {}},
            "first": {"type": "int", "default": 0},
            "timeout": {"type": "float", "default": 3},
            "process": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    asked = module.params
    if asked["state"] == "listening":
        found = listen(asked["ports"], asked["lifetime"], asked["address"])
        module.exit_json(process=asdict(found.process), listening=found.ports, busy=found.busy)
    if asked["state"] == "measured":
        reached = measure(asked["targets"], asked["ports"], asked["timeout"], asked["first"])
        module.exit_json(reached=to_json(reached))
    if asked["process"]:
        end(Background(int(asked["process"]["pid"]), int(asked["process"]["started"])))
    module.exit_json()


if __name__ == "__main__":
    main()
