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
  - With O(state=planned), returns what the nodes of the inventory need of their machines. Runs before the machines are
    probed.
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
    description: The hosts that represent the machines of the run.
    type: list
    elements: str
    required: true
  cluster:
    description: The name of the cluster. The file is named after it.
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
    description: The least number of workers, C(cluster_min_workers).
    type: int
  images:
    description: By kind of accelerator, the image of its nodes, C(cluster_images).
    type: dict
    default: {}
  builds:
    description: By image, how the controller builds it, C(cluster_image_builds). The inputs are read on the controller.
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
