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
  - Submits a batch script whose step starts the nodes of a cluster, and waits until the job runs. Each new reason for
    which it waits is shown. In check mode, shows the script.
  - A job of the same name of this user that runs or waits is used as it is.
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
    description: Whether there is a job.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: The name of the job.
    type: str
    required: true
  wish:
    description: What is asked for, as in the variables of the role C(slurm).
    type: dict
    default: {}
  wait_timeout:
    description:
      - How many seconds the job may wait for its hosts; V(0) means no limit. After that the job is cancelled, if it was
        submitted by this task.
    type: float
    default: 0
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
