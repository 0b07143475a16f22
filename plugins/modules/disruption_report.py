#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: disruption_report
short_description: "Internal: show the jobs that a change of the cluster would end"
version_added: 0.2.0
author: The argus.verl contributors (@argus-verl)
description:
  - Asks the head for its jobs, and shows those that the changes of a plan, or the removal of the cluster, would end.
    Fails if there are any, unless O(allowed).
  - If the head cannot list its jobs, jobs whose archives are open count.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
  - argus.verl.node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  plan:
    description: The result of M(argus.verl.cluster_plan).
    type: dict
    required: true
  removes_cluster:
    description: Whether the whole cluster is removed. Then nodes that stay are shown, too.
    type: bool
    default: false
  allowed:
    description: Whether jobs may be ended.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check which jobs the changes would end
  argus.verl.disruption_report:
    plan: "{{ plan }}"
"""

RETURN = r"""
problem:
  description: Why the head cannot list its jobs, or an empty string.
  type: str
  returned: always
"""
