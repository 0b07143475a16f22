#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: what is staged under a shared root."""

from __future__ import annotations

DOCUMENTATION = r"""
module: staged_info
short_description: What is staged under the shared root, and who uses it
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Lists models, datasets and snapshots under the shared root, from their manifests, with the jobs that use each.
  - What lies there and was not staged is listed as of kind V(unknown). What is being staged or removed, and what killed
    ones have left, is of kind V(unfinished).
requirements:
  - python >= 3.11
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  shared_root:
    description: The shared root, as the place sees it where the module runs.
    type: path
    default: /private
  verify:
    description:
      - Whether files are compared with their manifests. V(quick) reads only those of which size or time of change are
        not as they were, V(full) all of them.
    type: str
    choices: ['no', quick, full]
    default: 'no'
  progress_of:
    description: Only tell how far somebody is who stages this path now.
    type: path
seealso:
  - module: argus.verl.code_snapshot
  - module: argus.verl.hf_model
  - module: argus.verl.rl_dataset
"""

EXAMPLES = r"""
- name: See whether anything staged was changed since
  argus.verl.staged_info:
    verify: quick
  register: found
  failed_when: found.staged | map(attribute='problems') | flatten | length > 0
"""

RETURN = r"""
staged:
  description: What is there, by kind and name.
  type: list
  elements: dict
  returned: unless O(progress_of) is given
  contains:
    kind:
      description: V(model), V(rl_dataset), V(sft_dataset), V(snapshot), V(unknown) or V(unfinished).
      type: str
    name:
      description: Its name, by which a JobSpec asks for it.
      type: str
    path:
      description: Its directory.
      type: str
    source:
      description: Where it comes from; of what is being staged, how far it is.
      type: str
    bytes:
      description: The size of its files. Files that snapshots have in common take their space once.
      type: int
    files:
      description: How many there are.
      type: int
    staged_at:
      description: When it was staged, in UTC.
      type: str
    used_by:
      description: The submission ids of jobs that have not ended and use it.
      type: list
      elements: str
    problems:
      description: What is wrong with it, a line for each file.
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
progress:
  description: How far somebody is, or V(none) when nobody stages it.
  type: dict
  returned: with O(progress_of)
  contains:
    host:
      description: On which host.
      type: str
    pid:
      description: By which process there.
      type: int
    what:
      description: What it does at the moment.
      type: str
    done:
      description: How many bytes of that are done.
      type: int
    total:
      description: Of how many; 0 when that is not known.
      type: int
    started_at:
      description: When it began with that, in seconds since the epoch.
      type: float
    time:
      description: When it said so, in seconds since the epoch.
      type: float
"""

from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.staging.errors import StagingError, failure
from ansible_collections.argus.verl.plugins.module_utils.staging.listing import list_staged
from ansible_collections.argus.verl.plugins.module_utils.staging.lock import read_progress
from ansible_collections.argus.verl.plugins.module_utils.staging.options import OPTIONS, Verify, check_shared_root


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "shared_root": OPTIONS["shared_root"],
            "verify": {"type": "str", "choices": [each.value for each in Verify], "default": Verify.NO.value},
            "progress_of": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if given["progress_of"]:
        progress = read_progress(Path(given["progress_of"]))
        module.exit_json(changed=False, progress=asdict(progress) if progress else None)
    try:
        root = check_shared_root(Path(given["shared_root"]))
        staged = [entry.as_dict() for entry in list_staged(root, given["verify"])]
    except (StagingError, OSError) as error:
        module.fail_json(**failure(error))
    module.exit_json(changed=False, staged=staged)


if __name__ == "__main__":
    main()
