#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_report
short_description: "Internal: plan, compare and judge all machines, show the result, and fail on errors"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - With O(state=planned), returns what the nodes of the inventory need of their machines, before these are probed.
  - With O(state=reported), reads the results of M(argus.verl.machine_info), which are registered as C(__preflight),
    compares the machines, judges what they have tried together, prints all findings, worst first, and fails on errors.
    Writes the result as JSON to the controller.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: partial
    details:
      - In check mode no file is written.
  diff_mode:
    support: none
options:
  state:
    description: What to return.
    type: str
    choices: [planned, reported]
    default: reported
  hosts:
    description: The hosts that represent the machines of the run.
    type: list
    elements: str
    required: true
  cluster:
    description: The name of the cluster, which is also that of the file.
    type: str
    default: ""
  tier:
    description: The tier that was asked for.
    type: str
    choices: [fast, deep]
    default: fast
  accept:
    description: Keys of checks, as C(key) or C(key@host), whose findings become notes.
    type: list
    elements: str
    default: []
  least:
    description: How many workers are enough, C(cluster_min_workers).
    type: int
  images:
    description: The image of each kind of accelerator, C(cluster_images).
    type: dict
    default: {}
  builds:
    description: How the controller builds images, C(cluster_image_builds). Their inputs are read here.
    type: dict
    default: {}
  archive:
    description: Where a file with images is, C(cluster_image_archive).
    type: dict
    default: {}
  dest:
    description: The directory on the controller for the file. Without it, none is written.
    type: path
"""

EXAMPLES = r"""
- name: Show the findings of all machines
  argus.verl.preflight_report:
    hosts: "{{ ansible_play_hosts_all }}"
    cluster: mvp
    tier: fast
  run_once: true
"""

RETURN = r"""
placement:
  description: By host, the nodes on its machine.
  returned: with O(state=planned)
  type: dict
  sample: {gpu-01: [gpu-01]}
expectations:
  description: By host, what its nodes expect of the machine, for C(expect) of M(argus.verl.machine_info).
  returned: with O(state=planned)
  type: dict
  sample: {gpu-01: {trains: true, rdma: auto}}
preflight:
  description:
    - The result, as in the file, with C(tier), C(hosts), C(silent) (those without an answer), C(findings), C(hardware)
      and C(measured) (lines about the all-reduce).
  returned: with O(state=reported)
  type: dict
  sample: {tier: fast, hosts: [gpu-01], silent: [], findings: []}
controller_images:
  description: Images that machines lack, no registry has, and the engine of the controller has.
  returned: with O(state=reported)
  type: list
  elements: str
  sample: []
image_builds:
  description:
    - The values of O(builds) by the names of their images, each with the hash of its C(inputs), the C(arguments) of the
      engine, and whether to C(push) it.
  returned: with O(state=reported)
  type: dict
  sample: {}
"""
