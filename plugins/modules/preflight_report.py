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
  - With O(state=planned), places the nodes of the inventory, and returns for each machine what its nodes need, for
    M(argus.verl.machine_info).
  - With O(state=reported), reads the results of M(argus.verl.machine_info), which are registered as C(__preflight).
    Compares the machines, and judges what they tried together, such as the trial of the shared root. Shows all
    findings, worst first, writes the result as JSON to the controller, and fails on errors.
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
    description: Whether to plan the probe, or to report its results.
    type: str
    choices: [planned, reported]
    default: reported
  hosts:
    description: The hosts of the run, one for each machine.
    type: list
    elements: str
    required: true
  cluster:
    description: The name of the cluster. The file is named after it.
    type: str
    default: ""
  tier:
    description: The checks that have run. V(deep) also tests the shared root and the network between machines.
    type: str
    choices: [fast, deep]
    default: fast
  accept:
    description: Keys of checks, as C(key) or C(key@host), whose findings become notes.
    type: list
    elements: str
    default: []
  least:
    description: How many workers are enough, the variable C(cluster_min_workers). By default, all.
    type: int
  images:
    description: The images of nodes by kind of accelerator, the variable C(cluster_images).
    type: dict
    default: {}
  builds:
    description: How the controller builds images, the variable C(cluster_image_builds). Only with O(state=reported).
    type: dict
    default: {}
  archive:
    description: The file with saved images, the variable C(cluster_image_archive). Only with O(state=reported).
    type: dict
    default: {}
  dest:
    description: The directory on the controller for the file. Without it, none is written.
    type: path
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
