#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: machine_state
short_description: "Internal: manage network, token and directories of a cluster"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Creates the cluster's token once, in a file that only the nodes' user can read, and never shows it. Of two runs at
    the same time, the second uses the token of the first.
  - Creates missing directories of the shared root as the nodes' user, and never through a link. If the shared root
    belongs to root and no other user can write to it, root creates what is missing directly below it.
  - Puts the program of the collection, which nodes run, into the directory C(<cluster>/program), where only Ansible's
    user can write.
  - Creates the container network of the nodes if it is missing, with the engine's command.
  - With O(state=absent), removes the network, the token, the program, the registry of jobs and the tables of Ray's
    head, and the cluster's state directory if nothing else is in it. The shared root is never removed.
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
    description: V(present) creates what is missing. V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
  cluster:
    description: The cluster's name, for the network's label and the directory below O(state_dir).
    type: str
    required: true
  network:
    description: The container network of the nodes. Without it, or with V(host), no network is created.
    type: str
  engine:
    description: The container engine's command.
    type: str
    default: docker
  state_dir:
    description:
      - The directory for the state of clusters on this machine. The token of this one is in C(<cluster>/auth_token).
    type: path
    required: true
  token:
    description: The token of the cluster, to give it to its other machines. By default, the file's token or a new one.
    type: str
  rotate:
    description: Whether to replace the token with a new one. A running node keeps the old one until it is recreated.
    type: bool
    default: false
  head_storage:
    description:
      - Set for the machine of the head only. Where Ray's head keeps its tables.
      - With both values, the module creates C(<cluster>/jobs), the directory in which the head's steward registers
        jobs. V(rocksdb) also creates C(<cluster>/tables). V(memory) removes the tables of an earlier head.
    type: str
    choices: [rocksdb, memory]
  program:
    description: The program's file on the machine, C(argus-<hash>.zip). Set by the controller.
    type: path
  shared_root:
    description: The path of the shared root on this machine. It has to exist.
    type: path
  user:
    description: The numeric C(uid:gid) of the nodes. It owns the token, the registry and the directories.
    type: str
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.directories import create_directories
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import CLUSTER_LABEL
from ansible_collections.argus.verl.plugins.module_utils.cluster.names import problems
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import ROCKSDB, StateDirectory, StateError
from ansible_collections.argus.verl.plugins.module_utils.privileges import User


def network_ids(module: AnsibleModule, *filters: str) -> list[str]:
    """Return the ids of the networks with this name. Docker may have made two, for two processes at the same moment."""
    argv = [module.params["engine"], "network", "ls", "--format", "{{.ID}} {{.Name}}", *filters]
    _code, out, _err = module.run_command(argv, check_rc=True)
    return [line.split()[0] for line in out.splitlines() if line.split()[1:] == [module.params["network"]]]


def provide_network(module: AnsibleModule, exists: bool) -> list[str]:
    """Create the network, or remove it without `exists`. Return what changed."""
    name = module.params["network"]
    # A network without the label may be used. It belongs to another owner, so it is not removed.
    label = f"{CLUSTER_LABEL}={module.params['cluster']}"
    if name in (None, "host"):
        return []
    ids = network_ids(module, *([] if exists else ["--filter", f"label={label}"]))
    if bool(ids) == exists:
        return []
    if not module.check_mode:
        create = ["create", "--label", label, name]
        module.run_command([module.params["engine"], "network", *(create if exists else ["rm", *ids])], check_rc=True)
    return [f"network {name}"]


def check_params(module: AnsibleModule) -> None:
    """Fail, before the module changes anything, if a name or a path is wrong."""
    params = module.params
    values = {
        "cluster_name": params["cluster"],
        "cluster_state_dir": params["state_dir"],
        "cluster_network": params["network"],
        "shared_root_source": params["shared_root"],
        "ray_node_user": params["user"],
    }
    errors = list(problems(**{name: value for name, value in values.items() if value is not None}))
    if params["user"] == "":
        errors.append("user is empty")
    if not errors and params["shared_root"] is not None:
        state_dir, shared_root = os.path.realpath(params["state_dir"]), os.path.realpath(params["shared_root"])
        if os.path.commonpath([state_dir, shared_root]) == shared_root:
            errors.append("cluster_state_dir lies in the shared root, where every job could replace the token: move it")
    if errors:
        module.fail_json(msg="; ".join(errors))


def make_present(module: AnsibleModule) -> None:
    params = module.params
    user = User(*map(int, params["user"].split(":")))
    state = StateDirectory(params["state_dir"], params["cluster"], module.check_mode)
    # The directory is locked: of two runs at the same time, the second sees everything that the first has made.
    with state.open(create=True) as exists:
        changes = provide_network(module, exists=True)
        changes += state.protect() if exists else []
        changes += state.provide_token(user, params["token"] or "", params["rotate"])
        changes += state.provide_program(Path(params["program"])) if params["program"] else []
        if params["head_storage"]:
            changes += state.provide_registry(user)
            changes += state.provide_tables(user, params["head_storage"] == ROCKSDB)
        if params["shared_root"]:
            result = create_directories(Path(params["shared_root"]), user, module.check_mode)
            if result.get("failed"):
                module.fail_json(msg=result["msg"])
            changes += result["created"]
    after = "".join(f"{change}\n" for change in changes)
    module.exit_json(changed=bool(changes), diff={"before": "", "after": after})


def make_absent(module: AnsibleModule) -> None:
    changes = provide_network(module, exists=False)
    state = StateDirectory(module.params["state_dir"], module.params["cluster"], module.check_mode)
    with state.open() as exists:
        removed, remaining = state.remove() if exists else ([], [])
        changes += removed
    if remaining:
        module.warn(f"{state.path} is kept: this collection did not create {', '.join(remaining)}")
    before = "".join(f"{change}\n" for change in changes)
    module.exit_json(changed=bool(changes), left=remaining, diff={"before": before, "after": ""})


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "cluster": {"type": "str", "required": True},
            "network": {"type": "str"},
            "engine": {"type": "str", "default": "docker"},
            "state_dir": {"type": "path", "required": True},
            "token": {"type": "str", "no_log": True},
            "rotate": {"type": "bool", "default": False},
            "head_storage": {"type": "str", "choices": [ROCKSDB, "memory"]},
            "program": {"type": "path"},
            "shared_root": {"type": "path"},
            "user": {"type": "str"},
        },
        required_if=[("state", "present", ["user"])],
        supports_check_mode=True,
    )
    check_params(module)
    try:
        make_present(module) if module.params["state"] == "present" else make_absent(module)
    except StateError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename}: {error.strerror}. Set ansible_become for a user that may write there, or set "
            "cluster_state_dir and shared_root_source to directories that this user owns."
        )


if __name__ == "__main__":
    main()
