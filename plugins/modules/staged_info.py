#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: lists what is staged under a shared root."""

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
    description: The shared root, at the path where the module sees it.
    type: path
    default: /private
  verify:
    description:
      - Whether files are compared with their manifests. V(quick) reads only files whose size or modification time has
        changed, V(full) all of them.
    type: str
    choices: ['no', quick, full]
    default: 'no'
  progress_of:
    description: Return only the progress of the process that stages this path now.
    type: path
seealso:
  - module: argus.verl.code_snapshot
  - module: argus.verl.hf_model
  - module: argus.verl.rl_dataset
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
  returned: unless O(progress_of) is set
  contains:
    kind:
      description: V(model), V(rl_dataset), V(sft_dataset), V(snapshot), V(unknown) or V(unfinished).
      type: str
    name:
      description: Its name, to which a JobSpec refers.
      type: str
    path:
      description: Its directory.
      type: str
    source:
      description: Where it comes from; while it is being staged, its progress.
      type: str
    bytes:
      description: The size of its files. Files that snapshots share take their space only once.
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
finding:
  description: The problem (C(what)), its place (C(where)) and what to do about it (C(todo)).
  type: dict
  returned: failure
progress:
  description: The progress of the process that stages the path, or V(none) if there is none.
  type: dict
  returned: with O(progress_of)
  contains:
    host:
      description: The host of the process.
      type: str
    pid:
      description: The id of the process on that host.
      type: int
    what:
      description: The current step.
      type: str
    done:
      description: How many bytes of the step are done.
      type: int
    total:
      description: The bytes of the step; 0 if that is not known.
      type: int
    started_at:
      description: When the step began, in seconds since the epoch.
      type: float
    time:
      description: When the progress was written, in seconds since the epoch.
      type: float
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import StagingError, failure
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.listing import list_staged
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.lock import read_progress
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import OPTIONS, Verify, check_shared_root
from ansible_collections.argus.verl.plugins.module_utils.privileges import without_root


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "shared_root": OPTIONS["shared_root"],
            "verify": {"type": "str", "choices": [each.value for each in Verify], "default": Verify.NO.value},
            "progress_of": {"type": "path"},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["shared_root"])
    result = without_root(root, lambda: found(root, module.params["verify"], module.params["progress_of"]))
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(changed=False, **result)


def found(root: Path, verify: str, progress_of: str | None) -> dict[str, Any]:
    """What the module returns."""
    if progress_of:
        progress = read_progress(Path(progress_of))
        return {"progress": asdict(progress) if progress else None}
    try:
        return {"staged": [entry.as_dict() for entry in list_staged(check_shared_root(root), verify)]}
    except (StagingError, OSError) as error:
        return {"failed": True, **failure(error)}


if __name__ == "__main__":
    main()
