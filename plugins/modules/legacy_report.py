#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: legacy_report
short_description: "Internal: show Ray that this collection has not started"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Shows what M(argus.verl.legacy_ray) has found on all machines, registered as C(__ray_node_legacy). Fails
    if what is named cannot be removed.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  remove:
    description: The names of what is removed, as a list, or as text with commas between them.
    type: raw
    default: []
  end_jobs:
    description: Of O(remove), the names of what is removed although jobs run in it.
    type: raw
    default: []
"""

EXAMPLES = "# Internal: the roles of the collection have its tasks.\n"
