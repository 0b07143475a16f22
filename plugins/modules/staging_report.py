#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: staging_report
short_description: "Internal: show what was staged"
version_added: 0.2.0
author: The argus.verl contributors (@argus-verl)
description:
  - Shows a row for each item, and why items were refused. Fails if any was.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  model:
    description: The result of M(argus.verl.hf_model) in a loop.
    type: dict
    required: true
  dataset:
    description: The result of M(argus.verl.rl_dataset) in a loop.
    type: dict
    required: true
  snapshot:
    description: The result of M(argus.verl.code_snapshot) in a loop.
    type: dict
    required: true
  user_code:
    description: The result of M(argus.verl.user_code) in a loop.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the results
  argus.verl.staging_report:
    model: "{{ models }}"
    dataset: "{{ datasets }}"
    snapshot: "{{ snapshots }}"
    user_code: "{{ code }}"
"""

RETURN = r""" # """
