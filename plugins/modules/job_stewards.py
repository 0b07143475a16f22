#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: job_stewards
short_description: Start missing stewards of training jobs
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs on the head. Every job has a steward there, a process that manages the job until it has ended. When the head's
    container is restarted, the stewards are gone, and Ray has lost its jobs.
  - Starts a steward for each job of this head that has none and whose archive is not closed. The steward finds out what
    happened to the job, and starts another attempt if the job has retries left.
  - Ignores the jobs of other clusters on the same shared root.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  shared_root:
    description: The path of the shared root on this host.
    type: path
    default: /private
"""

EXAMPLES = r"""
- name: Start missing stewards after the head was restarted
  argus.verl.job_stewards:
"""

RETURN = r"""
started:
  description: The jobs that a steward was started for.
  type: list
  elements: str
  returned: always
"""

import socket
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.launcher import steward
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive, unclosed


def without_steward(jobs: Path, host: str) -> list[Archive]:
    """The jobs whose steward ran on this host and is gone, although their archives are not closed."""
    found = []
    for submission_id, heartbeat in unclosed(jobs).items():
        archive = Archive(jobs / submission_id)
        if heartbeat.get("host") == host:
            with steward.lock_of(archive) as free:
                found += [archive] * free
    return found


def main() -> None:
    module = AnsibleModule(
        argument_spec={"shared_root": {"type": "path", "default": "/private"}},
        supports_check_mode=True,
    )
    found = without_steward(Path(module.params["shared_root"]) / "jobs", socket.gethostname())
    if not module.check_mode:
        for archive in found:
            archive.run_launcher("keep")
    module.exit_json(changed=bool(found), started=[archive.submission_id for archive in found])


if __name__ == "__main__":
    main()
