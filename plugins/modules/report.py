#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The work is done by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Show a table in place of a wall of task results
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Prints a title, a table, findings and closing lines on the controller, once, in the plain form in which people
    read them.
  - Fails when a finding is an error or O(fail_when) is given.
  - Nothing is printed when there is nothing to say.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  title:
    description: The first line.
    type: str
  header:
    description: The names of the columns.
    type: list
    elements: str
  rows:
    description: The rows, each with as many cells as O(header).
    type: list
    elements: list
  findings:
    description: Findings of a check, each with C(where), C(what), C(todo) and C(severity) (V(error) or V(warning)).
    type: list
    elements: dict
  text:
    description: Closing lines.
    type: list
    elements: str
    default: []
  fail_when:
    description: Fail, with this as the message, unless it is empty.
    type: str
"""

EXAMPLES = r"""
- name: Show the cluster
  argus.verl.report:
    title: "Cluster mvp: 2 of 2 nodes alive"
    header: [node, gpus]
    rows: [[head, 0], [worker-0, 4]]
"""

RETURN = r""" # """
