#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_report
short_description: "Internal: show a cluster"
version_added: 0.2.0
author: The argus.verl contributors (@argus-verl)
description:
  - Shows a ready cluster, or the nodes that are missing with the end of their logs. Fails if too few nodes are ready.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
  - argus.verl.run_results
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  name:
    description: The name of the cluster.
    type: str
    required: true
  cluster:
    description: The result of M(argus.verl.ray_cluster_info).
    type: dict
    required: true
  plan:
    description: The result of M(argus.verl.cluster_plan).
    type: dict
    required: true
  dashboard:
    description: Where the dashboard is.
    type: str
    required: true
  least:
    description: How many workers are enough. By default, all.
    type: int
"""

EXAMPLES = r"""
- name: Show the cluster
  argus.verl.cluster_report:
    name: mvp
    cluster: "{{ cluster }}"
    plan: "{{ plan }}"
    dashboard: http://127.0.0.1:8265
"""

RETURN = r""" # """
