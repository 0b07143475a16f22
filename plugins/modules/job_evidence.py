#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: job_evidence
short_description: Collect evidence of a training job
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs on a node, best on the head. Asks Ray and every node of the job what they have to say of it, and writes that
    into the job's archive, below C(debug/). Stacks are taken without pausing any process.
  - When Ray does not answer, what this node has is taken, and the index says so.
  - What is done here is done by the launcher in the archive, the same that collects evidence while the job runs.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is collected.
  diff_mode:
    support: none
options:
  submission_id:
    description: The job's id.
    type: str
    required: true
  shared_root:
    description: The shared root as this host sees it.
    type: path
    default: /private
"""

EXAMPLES = r"""
- name: See what a job does that says nothing
  argus.verl.job_evidence:
    submission_id: grpo-20260101-120000-1a2b
"""

RETURN = r"""
archive:
  description: The job's directory.
  type: str
  returned: always
files:
  description: How many files were written.
  type: int
  returned: always
nodes:
  description: The nodes that had something to say.
  type: list
  elements: str
  returned: always
problems:
  description: What could not be had, and why.
  type: list
  elements: str
  returned: always
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.launcher import evidence
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive

SECONDS = 180


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "submission_id": {"type": "str", "required": True},
            "shared_root": {"type": "path", "default": "/private"},
        },
        supports_check_mode=True,
    )
    archive = Archive(Path(module.params["shared_root"]) / "jobs" / module.params["submission_id"])
    launcher = archive.path / "config" / "launcher"
    if not module.params["submission_id"] or not launcher.is_dir():
        module.fail_json(msg=f"There is no job {module.params['submission_id']!r} in {archive.path.parent}.")
    result: dict[str, Any] = {"archive": str(archive.path), "files": 0, "nodes": [], "problems": []}
    if module.check_mode:
        module.exit_json(changed=True, **result)
    before = len(archive.read_lines(evidence.INDEX))
    command = [sys.executable, str(launcher), "evidence", str(archive.path), evidence.DEMAND]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd="/")
    if done.returncode:
        module.fail_json(msg=f"The evidence of {archive.submission_id} could not be collected: {done.stderr.strip()}")
    added = [entry for entry in archive.read_lines(evidence.INDEX)[before:] if entry["moment"] == evidence.DEMAND]
    result["files"] = sum(bool(entry["file"]) for entry in added)
    result["nodes"] = sorted({entry["node"] for entry in added if entry.get("node")})
    result["problems"] = [f"{entry['file']} {entry['error']}".strip() for entry in added if entry.get("error")]
    module.exit_json(changed=True, **result)


if __name__ == "__main__":
    main()
