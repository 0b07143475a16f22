#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: "Internal: show a table and findings, and fail on errors"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Prints a title, a table, findings and closing lines on the controller, as plain text.
  - Fails when a finding is an error or O(fail_when) is set.
  - Prints nothing when there are neither rows, nor findings, nor closing lines.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
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
    description: Findings of checks, each with C(where), C(problem), C(remedy) and C(severity) (V(error) or V(warning)).
    type: list
    elements: dict
    default: []
  text:
    description: Closing lines.
    type: list
    elements: str
    default: []
  fail_when:
    description: The message to fail with. With an empty message, the task does not fail.
    type: str
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"

RETURN = r""" # """
