#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
from __future__ import annotations

DOCUMENTATION = r"""
module: staged_info
short_description: Return information about staged items
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Lists models, datasets and snapshots under the shared root from their manifests, with the jobs that use each.
  - A directory that was not staged has the kind V(unknown). Something that is being staged or removed, or was left by
    a process that was killed, has the kind V(unfinished).
  - Runs C(argus staged) in a node, preferably in the head, from its machine. No module is sent. If the node does not
    run, a container of its image answers.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  verify:
    description:
      - Whether files are compared with their manifests. V(quick) reads only files whose size or modification time has
        changed, V(full) all of them.
    type: str
    choices: ['no', quick, full]
    default: 'no'
seealso:
  - module: argus.verl.stage
"""

EXAMPLES = r"""
- name: Fail if anything has changed since it was staged
  argus.verl.staged_info:
    verify: quick
  register: found
  failed_when: found.staged | map(attribute='problems') | flatten | length > 0
"""

RETURN = r"""
staged:
  description: Everything under the shared root, by kind and name.
  type: list
  elements: dict
  returned: success
  contains:
    kind:
      description: V(model), V(rl_dataset), V(sft_dataset), V(snapshot), V(unknown) or V(unfinished).
      type: str
    name:
      description: Its name, to which a JobSpec refers.
      type: str
    path:
      description: Its directory, as nodes see it.
      type: str
    source:
      description: Where it comes from; while it is being staged, its progress.
      type: str
    bytes:
      description: The size of its files.
      type: int
    files:
      description: The number of its files.
      type: int
    staged_at:
      description: When it was staged, in UTC.
      type: str
    used_by:
      description: The submission ids of jobs that have not ended and use it.
      type: list
      elements: str
    problems:
      description: What is wrong with it, one line for each of the first 20 files, and the number of the others.
      type: list
      elements: str
  sample:
    - kind: snapshot
      name: verl-0.9.1
      path: /private/common/code/verl/verl-0.9.1
      source: verl==0.9.1
      bytes: 5557011
      files: 423
      staged_at: "2026-01-01T12:00:00Z"
      used_by: [grpo-20260101-120000-1a2b]
      problems: []
      verl_version: 0.9.1
rows:
  description: The rows of a table - kind, name, size, time, source, and the jobs that use it.
  type: list
  elements: list
  returned: success
findings:
  description: The problems of all entries, as M(argus.verl.report) takes them.
  type: list
  elements: dict
  returned: success
"""
