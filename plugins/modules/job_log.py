#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
from __future__ import annotations

DOCUMENTATION = r"""
module: job_log
short_description: Show or follow the log of a training job
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Prints the last lines of the driver's log on the controller. With O(follow), prints new lines as they appear, until
    the job has ended.
  - Does not fail if the job fails.
  - Asks as M(argus.verl.ray_job_info) does, so it works whether the cluster is up or down.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  submission_id:
    description: The job's id.
    type: str
    required: true
  lines:
    description: How many lines from the end of the log to show.
    type: int
    default: 100
  follow:
    description: Whether to follow the log until the job has ended.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show the end of a job's log
  argus.verl.job_log:
    submission_id: grpo-20260101-120000-1a2b
    lines: 20
"""

RETURN = r"""
job:
  description: As returned by M(argus.verl.ray_job_info).
  type: dict
  returned: success
"""
