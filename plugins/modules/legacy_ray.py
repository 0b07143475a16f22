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
  - Lists the containers and processes of Ray on a machine that do not belong to this collection.
  - With O(state=absent), removes those that O(remove) names. Volumes with a name, images and files stay.
  - Containers with a label of this collection, and processes with its mark, are never listed, so never removed.
  - If a job runs in something that O(remove) names, the module fails and removes nothing, unless O(ends_jobs).
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
    description: V(listed) returns rows and findings for M(argus.verl.report). V(absent) removes what O(remove) names.
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
    description: The names to remove, as listed. Names that are not on this machine are ignored.
    type: list
    elements: str
    default: []
  ends_jobs:
    description: Remove what O(remove) names although jobs run in it.
    type: bool
    default: false
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"

from collections.abc import Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import run_command
from ansible_collections.argus.verl.plugins.module_utils.cluster.unmanaged_ray import (
    UnmanagedRayError,
    UnmanagedRayOnMachine,
    busy_findings,
    unmanaged_report,
)


def remove_named(on_machine: UnmanagedRayOnMachine, params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Remove what is named, and return the result. Raises UnmanagedRayError, before anything is removed, for a job."""
    rays = on_machine.list_all()
    if refused := busy_findings(params["host"], rays, params["remove"], params["ends_jobs"]):
        raise UnmanagedRayError("; ".join(f"{finding.problem}: {finding.remedy}" for finding in refused))
    removed = [ray for ray in rays if ray.name in params["remove"]]
    if not check_mode:
        for ray in removed:
            on_machine.remove(ray)
    remaining = [ray.name for ray in rays if ray not in removed]
    diff = {"before": joined_lines(ray.name for ray in rays), "after": joined_lines(remaining)}
    return {"changed": bool(removed), "removed": [ray.name for ray in removed], "diff": diff}


def joined_lines(names: Iterable[str]) -> str:
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
    params = module.params
    on_machine = UnmanagedRayOnMachine(params["engine"], run_command)
    try:
        if params["state"] == "absent":
            module.exit_json(**remove_named(on_machine, params, module.check_mode))
        rays = on_machine.list_all()
        module.exit_json(**unmanaged_report(params["host"], rays, params["remove"], params["ends_jobs"]))
    except UnmanagedRayError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
