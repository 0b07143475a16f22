#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: job_archive
short_description: "Internal: fetch the archive of a training job, or collect evidence into it"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - With O(state=fetched), fetches the configuration, logs, metrics and evidence of a job to
    C(<dest>/<submission_id>/) on the controller, and its checkpoints with O(checkpoints). They travel as one compressed
    bundle.
  - Only regular files are fetched. A warning lists what is skipped - links, FIFOs, devices, sockets, files that are too
    large, and names that other systems cannot store or show.
  - Runs C(argus fetch) in the node, from its machine. No module is sent, and the machine needs no Python.
  - If the node does not run, a container of O(node.images) packs the archive, without a network.
  - Reads the archive as the user of the nodes, never as root.
  - With O(state=examined), collects Ray's view of the job, and processes, stacks and GPU states from every node, into
    the C(debug/) directory of the archive on the shared root, with C(argus evidence) in the node. Stacks are taken
    without pausing any process. If Ray does not answer, only this node is examined, and the index of the evidence
    records that. Fails if the node does not run.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
  - argus.verl.node
attributes:
  check_mode:
    support: full
    details: Neither fetches nor collects anything.
  diff_mode:
    support: none
options:
  state:
    description: V(fetched) fetches the archive. V(examined) collects evidence into it.
    type: str
    choices: [fetched, examined]
    default: fetched
  submission_id:
    description: The job's id.
    type: str
    required: true
  checkpoints:
    description:
      - Whether to fetch the job's checkpoints as well.
      - A job could fill the controller with large files. So a file may have at most 2 GiB and all files together 8 GiB,
        or with checkpoints 64 GiB and 4 TiB.
    type: bool
    default: false
  dest:
    description:
      - The directory on the controller in which a directory named after the job is created. Required with
        O(state=fetched).
    type: path
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"
