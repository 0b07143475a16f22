# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: program
short_description: "Internal: run a verb of the program of jobs in a node"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs C(argus VERB --json) in a node, from its machine. No module is sent, and the machine needs no Python.
  - Warnings among the findings are shown. With errors, the task fails.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
  - argus.verl.node
attributes:
  check_mode:
    support: full
    details: The verb is asked to change nothing.
  diff_mode:
    support: none
options:
  verb:
    description: The verb, as C(argus --help) lists them, or an internal one.
    type: str
    required: true
  request:
    description: The options of the verb, as a mapping.
    type: dict
    default: {}
  seconds:
    description: How long the verb may take.
    type: float
    default: 60
  apart:
    description:
      - Whether the verb runs outside of the node, in a container of the node's image that ends with the answer. The
        state of the node does not matter then. A node without a container has its verb run on the machine.
    type: bool
    default: false
  needs_node:
    description: Whether the task fails if the node does not run. If not, the verb then runs as with O(apart).
    type: bool
    default: true
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
