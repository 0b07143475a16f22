#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: legacy_ray
short_description: "Internal: list and remove Ray that was started by hand"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Lists the containers and processes of Ray systems on a machine that are not of this collection.
  - With O(state=absent), removes those that O(remove) names. Volumes with a name, images and files stay.
  - Containers with a label of this collection, and processes with its mark, are never listed, so never removed.
  - Something in which a job runs is removed only with O(ends_jobs). Otherwise, nothing is removed.
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
    description: Whether to list everything, with rows and findings for M(argus.verl.report), or to remove something.
    type: str
    choices: [listed, absent]
    required: true
  host:
    description: The name of the machine in rows and findings.
    type: str
    required: true
  engine:
    description: The command of the container engine. A machine without it has no containers.
    type: str
    default: docker
  remove:
    description: The names of what is removed. Names that are not on this machine are ignored.
    type: list
    elements: str
    default: []
  ends_jobs:
    description: Whether something is removed although jobs run in it.
    type: bool
    default: false
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"

from collections.abc import Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.legacy import (
    UnmanagedRayError,
    UnmanagedRayFinder,
    busy_findings,
    unmanaged_report,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.probe import run_command


def absent(finder: UnmanagedRayFinder, params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Remove what is named, and return the result."""
    rays = finder.find()
    if refused := busy_findings(params["host"], rays, params["remove"], params["ends_jobs"]):
        raise UnmanagedRayError("; ".join(f"{finding.problem}: {finding.remedy}" for finding in refused))
    removed = [ray for ray in rays if ray.name in params["remove"]]
    if not check_mode:
        for ray in removed:
            finder.remove(ray)
    remaining = [ray.name for ray in rays if ray not in removed]
    diff = {"before": lines(ray.name for ray in rays), "after": lines(remaining)}
    return {"changed": bool(removed), "removed": [ray.name for ray in removed], "diff": diff}


def lines(names: Iterable[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["listed", "absent"], "required": True},
            "host": {"type": "str", "required": True},
            "engine": {"type": "str", "default": "docker"},
            "remove": {"type": "list", "elements": "str", "default": []},
            "ends_jobs": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    finder, params = UnmanagedRayFinder(module.params["engine"], run_command), module.params
    try:
        if params["state"] == "absent":
            module.exit_json(**absent(finder, params, module.check_mode))
        module.exit_json(**unmanaged_report(params["host"], finder.find(), params["remove"], params["ends_jobs"]))
    except UnmanagedRayError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
