#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: machine_state
short_description: Manage network, token and directories of a cluster
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Creates the cluster's token once, in a file that only the nodes' user can read, and never shows it.
  - Creates missing directories of the shared root.
  - Creates the container network of the nodes if it is missing, with the engine's command.
  - With O(state=absent), removes the network, the token and the cluster's state directory. The shared root is never
    removed.
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  state:
    description: Whether the cluster's state is on the machine.
    type: str
    choices: [present, absent]
    default: present
  cluster:
    description: The cluster's name, for the network's label.
    type: str
    required: true
  network:
    description: The container network of the nodes. Without it, or with V(host), no network is created.
    type: str
  engine:
    description: The container engine's command.
    type: str
    default: docker
  token_file:
    description: The file of the token. Its directory belongs to the cluster alone.
    type: path
    required: true
  token:
    description: The token of an existing cluster, for its other machines. By default, the file's token or a new one.
    type: str
  shared_root:
    description: The path of the shared root on this machine. It has to exist.
    type: path
  user:
    description: The numeric C(uid:gid) of the nodes. It owns the token and the directories.
    type: str
"""

EXAMPLES = r"""
- name: Create network, token and the directories of the shared root on the head's machine
  argus.verl.machine_state:
    cluster: mvp
    network: mvp-ray
    token_file: /var/lib/argus-verl/mvp/auth_token
    shared_root: /private
    user: "1000:1000"

- name: Copy the token to another machine
  argus.verl.machine_state:
    cluster: mvp
    token_file: /var/lib/argus-verl/mvp/auth_token
    token: "{{ slurped_under_no_log.content | b64decode }}"
    user: "1000:1000"
"""

RETURN = r""" # """

import os
import secrets
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import CLUSTER_LABEL

# The layout of the shared root; the nodes' user can write to all of it.
DIRECTORIES = (
    "datasets",
    "hf",
    "jobs",
    "outputs",
    "ray",
    "common/models",
    "common/datasets",
    "common/code/verl",
    "user/code",
)


def missing_directories(shared_root: Path) -> list[Path]:
    """Return missing directories with their parents, so that each one gets its owner."""
    wanted: list[Path] = []
    for name in DIRECTORIES:
        parts = Path(name).parts
        wanted += [shared_root.joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
    return [path for path in dict.fromkeys(wanted) if not path.is_dir()]


def write_token(path: Path, token: str, owner: tuple[int, int]) -> None:
    """Write atomically; no other user can read the file at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    try:
        os.write(descriptor, token.encode())
        if os.geteuid() == 0:
            os.fchown(descriptor, *owner)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)


def network_exists(module: AnsibleModule, *filters: str) -> bool:
    argv = [module.params["engine"], "network", "ls", "--format", "{{.Name}}", *filters]
    _code, out, _err = module.run_command(argv, check_rc=True)
    return module.params["network"] in out.split()


def change_network(module: AnsibleModule, wanted: bool) -> list[str]:
    """Create or remove the network, and return what changed."""
    name = module.params["network"]
    # A network without the label may be used, but belongs to another owner and is not removed.
    label = f"{CLUSTER_LABEL}={module.params['cluster']}"
    own = [] if wanted else ["--filter", f"label={label}"]
    if name in (None, "host") or network_exists(module, *own) == wanted:
        return []
    create = ["create", "--label", label, name]
    if not module.check_mode:
        module.run_command([module.params["engine"], "network", *(create if wanted else ["rm", name])], check_rc=True)
    return [f"network {name}"]


def present(module: AnsibleModule) -> None:
    changes = change_network(module, wanted=True)
    path = Path(module.params["token_file"])
    uid, gid = map(int, module.params["user"].split(":"))
    there = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    token = module.params["token"] or there or secrets.token_hex(32)
    if token != there:
        changes.append(str(path))
        if not module.check_mode:
            write_token(path, token, (uid, gid))
    if module.params["shared_root"]:
        for directory in missing_directories(Path(module.params["shared_root"])):
            changes.append(str(directory))
            if not module.check_mode:
                directory.mkdir(exist_ok=True)
                if os.geteuid() == 0:
                    os.chown(directory, uid, gid)
    after = "".join(f"{change}\n" for change in changes)
    module.exit_json(changed=bool(changes), diff={"before": "", "after": after})


def absent(module: AnsibleModule) -> None:
    changes = change_network(module, wanted=False)
    directory = Path(module.params["token_file"]).parent
    if directory.is_dir():
        changes.append(str(directory))
        if not module.check_mode:
            shutil.rmtree(directory)
    before = "".join(f"{change}\n" for change in changes)
    module.exit_json(changed=bool(changes), diff={"before": before, "after": ""})


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "cluster": {"type": "str", "required": True},
            "network": {"type": "str"},
            "engine": {"type": "str", "default": "docker"},
            "token_file": {"type": "path", "required": True, "no_log": False},
            "token": {"type": "str", "no_log": True},
            "shared_root": {"type": "path"},
            "user": {"type": "str"},
        },
        required_if=[("state", "present", ["user"])],
        supports_check_mode=True,
    )
    try:
        present(module) if module.params["state"] == "present" else absent(module)
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename}: {error.strerror}. Set ansible_become for a user that may write there, or set "
            "cluster_state_dir and shared_root_source to directories that this user owns."
        )


if __name__ == "__main__":
    main()
