#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
from __future__ import annotations

DOCUMENTATION = r"""
module: job_evidence
short_description: Collect evidence of a training job
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs C(argus evidence) in a node, preferably in the head, from its machine. No module is sent.
  - Collects Ray's view of the job, and processes, stacks and GPU states from every node, into the C(debug/) directory
    of the job's archive. Stacks are taken without pausing any process.
  - If Ray does not answer, only this node is examined, and the index of the evidence records that.
  - Fails if the node does not run.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
    details: Collects nothing.
  diff_mode:
    support: none
options:
  submission_id:
    description: The job's id.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Find out what a silent job is doing
  argus.verl.job_evidence:
    submission_id: grpo-20260101-120000-1a2b
"""

RETURN = r"""
archive:
  description: The job's directory.
  type: str
  returned: always
files:
  description: The number of files that were written.
  type: int
  returned: always
nodes:
  description: The nodes that evidence was collected from.
  type: list
  elements: str
  returned: always
row:
  description: The node, the number of files, the nodes and the problems, for a table.
  type: list
  elements: raw
  returned: always
problems:
  description: What could not be collected, and why.
  type: list
  elements: str
  returned: always
"""
