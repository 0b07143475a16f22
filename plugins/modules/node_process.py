#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_process
short_description: "Internal: manage a Ray node that is a process"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Starts a supervisor that keeps Ray running on a host that exists already, for C(ray_node_runtime=process). It is a
    process of Ansible's user, in a session of its own, and needs no container engine, no root and no service manager.
  - A node that runs as asked is not touched. One that runs with other settings is ended and started again.
  - With O(state=absent), ends every process of the node and removes its files. Other processes, and every other Ray on
    the host, are left alone.
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
    description: Whether the node runs.
    type: str
    choices: [present, absent]
    default: present
  directory:
    description: The directory of the node on the host, below C(cluster_state_dir).
    type: path
    required: true
  working_directory:
    description: The directory of Ray's sessions, E(RAY_TMPDIR). Removed with the last node of the cluster on the host.
    type: path
    required: true
  command:
    description: The command line of Ray, which stays in the foreground. Required with O(state=present).
    type: list
    elements: str
  environment:
    description: The environment of the node. It replaces the one of the connection.
    type: dict
    default: {}
  python:
    description: The Python that runs the supervisor. Required with O(state=present).
    type: str
  specification:
    description: What identifies the settings of the node. A node with another one is started again.
    type: str
    default: ""
  settings:
    description: The settings by name, as JSON, for the explanation of later changes.
    type: str
    default: ""
  derived:
    description: The variables in O(environment) that were derived from all machines, as JSON. Others restart nothing.
    type: str
    default: ""
"""

EXAMPLES = "# Internal: the roles of the collection have its tasks.\n"

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.common.identity import PROGRAM_DIRECTORY
from ansible_collections.argus.verl.plugins.module_utils.cluster.node_process import (
    RUNNING,
    FoundProcess,
    NodeProcess,
    ProcessError,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import PROGRAM
from ansible_collections.argus.verl.plugins.module_utils.cluster.supervisor import MARK

ORDER = ("command", "python", "working_directory", "specification", "settings", "derived")


def order_of(params: dict[str, Any], directory: Path) -> dict[str, Any]:
    environment = {str(name): str(value) for name, value in params["environment"].items()}
    own = {MARK: str(directory), PROGRAM_DIRECTORY: str(directory.parents[1] / PROGRAM)}
    return {**{name: params[name] for name in ORDER}, "environment": {**environment, **own}}


def change(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Do what is asked, and return the result."""
    node = NodeProcess(params["directory"])
    before = after = node.look()
    if params["state"] == "present":
        changed = (before.state, before.specification) != (RUNNING, params["specification"])
        if changed and not check_mode:
            after = node.start(order_of(params, node.directory))
        wanted = RUNNING
    else:
        changed, wanted = bool(before.state), ""
        if not check_mode:
            changed, after = node.remove(params["working_directory"]), FoundProcess()
    diff = {
        "before": f"{before.state or 'absent'}\n",
        "after": f"{(wanted or 'absent') if changed else before.state}\n",
    }
    return {"changed": changed, "node": asdict(after), "diff": diff}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "directory": {"type": "path", "required": True},
            "working_directory": {"type": "path", "required": True},
            "command": {"type": "list", "elements": "str"},
            "environment": {"type": "dict", "default": {}},
            "python": {"type": "str"},
            "specification": {"type": "str", "default": ""},
            "settings": {"type": "str", "default": ""},
            "derived": {"type": "str", "default": ""},
        },
        required_if=[("state", "present", ["command", "python"])],
        supports_check_mode=True,
    )
    # The environment may have secrets: it is not repeated in the result, even with -vvv.
    invocation = {"module_args": {**module.params, "environment": sorted(module.params["environment"])}}
    try:
        module.exit_json(**change(module.params, module.check_mode), invocation=invocation)
    except ProcessError as error:
        module.fail_json(msg=str(error), invocation=invocation)
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['directory']}: {error.strerror}", invocation=invocation)


if __name__ == "__main__":
    main()
