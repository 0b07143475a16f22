#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_jobs
short_description: "Internal: end the jobs of a cluster that is removed"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Ends the jobs that a cluster has submitted, before its nodes are removed, so that no archive stays C(RUNNING) for
    ever and no file with secrets stays.
  - With O(state=ended), runs on the head. Asks for the end of every job whose archive is not closed, and waits until
    its steward has closed it, at most 60 seconds for all jobs together. A head that does not answer is no error.
  - With O(state=closed), runs on the head's machine when the nodes are gone, also if the head was dead before. Closes
    the archives that are still open, and removes the files with secrets. Works on the shared root as the user of the
    nodes, never as root.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  state:
    description: Whether stewards end the jobs, or the archives are closed without any node.
    type: str
    choices: [ended, closed]
    required: true
  shared_root:
    description: The path of the shared root on this host.
    type: path
    default: /private
  registry:
    description:
      - The directory on this host that records which jobs this cluster has submitted. By default, that of this node.
    type: path
"""

EXAMPLES = r"""
- name: End the jobs
  argus.verl.cluster_jobs:
    state: ended
  delegate_to: ray-head

- name: Close the archives when the nodes are gone
  argus.verl.cluster_jobs:
    state: closed
    registry: /var/lib/argus-verl/mvp/jobs
"""

RETURN = r"""
closed:
  description: The jobs whose archives were closed, or would be in check mode.
  type: list
  elements: str
  returned: always
findings:
  description: A warning for each job whose archive could not be closed, each with C(where), C(what) and C(todo).
  type: list
  elements: dict
  returned: always
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import DEFAULT_SHARED_ROOT, JOBS
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.registry import Registry
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.removal import Removal, close_jobs, end_jobs
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.services import Services
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.ray_api import RayHead, job_client
from ansible_collections.argus.verl.plugins.module_utils.node_environment import enter_node
from ansible_collections.argus.verl.plugins.module_utils.privileges import without_root


def closed(root: Path, registered: list[str], check_mode: bool) -> dict[str, Any]:
    result = without_root(root, lambda: close_jobs(root / JOBS, registered, check_mode).to_json())
    if not result.get("failed"):
        return result
    todo = f"remove the files in {root / JOBS / '.secrets'} of: {', '.join(registered)}"
    finding = Finding(
        str(root), f"the archives of this cluster's jobs cannot be closed: {result['msg']}", todo, WARNING
    )
    return Removal(findings=(finding,)).to_json()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["ended", "closed"], "required": True},
            "shared_root": {"type": "path", "default": DEFAULT_SHARED_ROOT},
            "registry": {"type": "path"},
        },
        supports_check_mode=True,
    )
    enter_node(module.fail_json)
    root, registry = Path(module.params["shared_root"]), Registry(module.params["registry"])
    registered = registry.ids()
    if not registered:
        module.exit_json(**Removal().to_json())
    if module.params["state"] == "closed":
        module.exit_json(**closed(root, registered, module.check_mode))
    token_path = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    services = Services(head=lambda address: RayHead(address, token_path), client=job_client, registry=registry)
    module.exit_json(**end_jobs(root / JOBS, registered, services, module.check_mode).to_json())


if __name__ == "__main__":
    main()
