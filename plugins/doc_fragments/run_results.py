# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    """What a run has done on each host."""

    DOCUMENTATION = r"""
options:
  results:
    description: The variables in which a run has registered what its tasks did on each host.
    type: dict
    default: {}
    suboptions:
      started:
        description: The result of starting a node.
        type: str
      inspected:
        description: The result of looking at a node that does not join.
        type: str
      logs:
        description: The result of reading the end of a node's log.
        type: str
"""
