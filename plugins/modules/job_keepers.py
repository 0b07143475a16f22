#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: job_keepers
short_description: Take up the jobs that an earlier head has left
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Runs on the head. Every job has a keeper there, a process that sees to it until it has ended. With the head's
    container it is gone, and Ray has forgotten the job.
  - Starts a keeper for each job of this head that has none and whose archive is not closed. It finds out what has
    become of the job, and tries again if the job has retries left.
  - Jobs of other clusters on the same shared root are left alone.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  shared_root:
    description: The shared root as this host sees it.
    type: path
    default: /private
"""

EXAMPLES = r"""
- name: After the head was started again
  argus.verl.job_keepers:
"""

RETURN = r"""
started:
  description: The jobs that have a keeper again.
  type: list
  elements: str
  returned: always
"""

import socket
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.launcher import steward
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive, unclosed


def left(jobs: Path, host: str) -> list[Archive]:
    """The jobs whose keeper was on this host and is gone, although their archives are not closed."""
    found = []
    for submission_id, sign in unclosed(jobs).items():
        archive = Archive(jobs / submission_id)
        if sign.get("host") == host:
            with steward.lock_of(archive) as free:
                found += [archive] * free
    return found


def main() -> None:
    module = AnsibleModule(
        argument_spec={"shared_root": {"type": "path", "default": "/private"}},
        supports_check_mode=True,
    )
    found = left(Path(module.params["shared_root"]) / "jobs", socket.gethostname())
    if not module.check_mode:
        for archive in found:
            archive.run_launcher("keep")
    module.exit_json(changed=bool(found), started=[archive.submission_id for archive in found])


if __name__ == "__main__":
    main()
