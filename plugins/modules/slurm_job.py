#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_job
short_description: "Internal: ask Slurm for the hosts of a cluster"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Submits a batch script, and waits until Slurm has started it on the hosts of the cluster. Shows each new reason for
    which the job waits. In check mode, shows the script.
  - If this user already has a job with this name that runs or waits, the module uses that job as it is.
  - Runs on the controller, with Slurm's commands.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  state:
    description: V(present) submits the job if there is none. V(absent) cancels it.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: The name of the job.
    type: str
    required: true
  wish:
    description: What to ask of Slurm, by the variables of the role C(slurm).
    type: dict
    default: {}
  wait_timeout:
    description:
      - How many seconds the job may wait for its hosts; V(0) means no limit. After that time, the task fails, and
        cancels the job if it has submitted it.
    type: float
    default: 0
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
