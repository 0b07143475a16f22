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

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
