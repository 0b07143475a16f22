#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: inventory_check
short_description: "Internal: check an inventory before any host is touched"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Checks groups, names and variables of the inventory. Shows all problems, and fails on errors.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  works_on:
    description: The groups that need at least one host in the run.
    type: list
    elements: str
    default: []
  show_summary:
    description: Whether to show one line about a correct inventory.
    type: bool
    default: false
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
