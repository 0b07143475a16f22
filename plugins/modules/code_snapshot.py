#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: an immutable snapshot of a verl source tree under the shared root."""

from __future__ import annotations

DOCUMENTATION = r"""
module: code_snapshot
short_description: Stage a snapshot of verl
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Copies one version of verl to C(common/code/verl/<code_id>/) under the shared root. A training job selects it with
    E(PYTHONPATH). Any number of snapshots can exist side by side.
  - A snapshot is created once and never changes. It is read-only on disk, and it appears completely or not at all. If
    it already exists, its files are compared with its manifest.
  - Besides C(verl/), a snapshot has C(mvp_marker.py), with which a job proves which snapshot it imported, and
    C(manifest.json) with source, commit, version, requirements, and size and SHA-256 of every file.
  - Files that are equal in one of the newest snapshots become hard links to them, so a similar snapshot takes hardly
    any space.
  - Runs on a machine that mounts the shared root and has access to the source. Nodes need neither pip nor git.
  - If it runs as root, everything on the shared root is done as its owner, without the rights of root.
requirements:
  - python >= 3.11
  - pip (for a source that is a release)
  - git (for a source that is a repository)
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.staging
attributes:
  check_mode:
    support: full
    details: Nothing is downloaded. A branch or a tag is resolved, which sends a request to its repository.
  diff_mode:
    support: full
options:
  source:
    description:
      - One of the following.
      - A release with an exact version (V(verl==0.9.1)). Its wheel is downloaded by the C(pip) of the Python that runs
        this module, with its configuration. Wheels of verl have no C(examples/).
      - A repository with a branch, a tag or a commit of 40 digits, in the notation of pip
        (V(git+https://github.com/verl-project/verl@v0.9.1), V(git+ssh://git@host/team/verl@main)). If a branch has
        moved since, it is another snapshot. Without O(code_id) it gets another name; with it, that is an error.
      - The absolute path of a directory on this machine that contains C(verl/). For a git checkout, the snapshot
        records the commit, and uncommitted changes as C(uncommitted.patch).
      - The code id of an existing snapshot, to add O(overlays) to it.
      - A snapshot has the packages C(verl/), C(recipe/) and C(examples/) of its source, without C(.git), caches and
        C(*.egg-info). Links to files are followed; one that leads out of the source is an error. Submodules of a
        repository are not downloaded.
      - Required for O(state=present).
    type: str
  code_id:
    description:
      - The name of the snapshot, which is the C(code_path) of a JobSpec.
      - Matches C([A-Za-z0-9][A-Za-z0-9._-]{0,62}).
      - By default C(verl-<version>) for a release, C(<repository>-<start of the commit>) for a repository,
        C(verl-<version>-<start of the SHA-256 of its content>) for a directory. With overlays, the start of a SHA-256
        of source and overlays is appended. A changed directory therefore becomes another snapshot.
      - Required for O(state=absent).
    type: str
  overlays:
    description: Directories of your own to add to the snapshot, in this order. Each replaces files that exist.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The directory on this machine.
        type: path
        required: true
      to:
        description: The destination of its files, relative to the snapshot, such as V(recipe/mine) or V(my_package).
        type: str
        required: true
  git_token:
    description:
      - The token for a private repository over HTTPS. It is only passed in the environment of C(git).
    type: str
  ssh_key:
    description: The private key on this machine for a repository over SSH. By default, C(ssh) selects it.
    type: path
seealso:
  - module: argus.verl.staged_info
"""

EXAMPLES = r"""
- name: Stage two releases of verl side by side
  argus.verl.code_snapshot:
    shared_root: /srv/verl
    source: "{{ item }}"
  loop: [verl==0.9.0, verl==0.9.1]

- name: Stage the checkout of a colleague under its own name
  argus.verl.code_snapshot:
    shared_root: /srv/verl
    source: /home/ann/src/verl
    code_id: ann-longer-rollouts

- name: Add your own recipe to a release
  argus.verl.code_snapshot:
    shared_root: /srv/verl
    source: verl-0.9.1
    overlays: [{path: /home/ann/recipes/dapo2, to: recipe/dapo2}]

- name: Stage a commit of a private repository
  argus.verl.code_snapshot:
    shared_root: /srv/verl
    source: git+https://git.example.com/team/verl@0123456789abcdef0123456789abcdef01234567
    git_token: "{{ vault_git_token }}"
"""

RETURN = r"""
code_id:
  description: The name of the snapshot.
  type: str
  returned: success
  sample: verl-0.9.1
path:
  description: The directory of the snapshot on this machine.
  type: str
  returned: success
  sample: /srv/verl/common/code/verl/verl-0.9.1
status:
  description:
    - V(staged) if it is new, V(exists) if it existed and fits its manifest, V(repaired) if files were restored,
      V(removed) and V(absent) for O(state=absent). In check mode, what it would be.
  type: str
  returned: success
  sample: staged
finding:
  description: The problem (C(what)), its place (C(where)) and what to do about it (C(todo)).
  type: dict
  returned: failure
notes:
  description: The repaired files, one line each.
  type: list
  elements: str
  returned: success
  sample: []
verl_version:
  description: The version of verl in it.
  type: str
  returned: if the snapshot exists
  sample: 0.9.1
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.staging import snapshots
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import StagingError, failure
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.git import Git
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.manifest import read_manifest
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import OPTIONS, StageOptions
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.result import Staged, module_result
from ansible_collections.argus.verl.plugins.module_utils.privileges import without_root


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **OPTIONS,
            "source": {"type": "str"},
            "code_id": {"type": "str"},
            "overlays": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"path": {"type": "path", "required": True}, "to": {"type": "str", "required": True}},
            },
            "git_token": {"type": "str", "no_log": True},
            "ssh_key": {"type": "path", "no_log": False},
        },
        required_if=[("state", "present", ["source"]), ("state", "absent", ["code_id"])],
        supports_check_mode=True,
    )
    given, check = module.params, module.check_mode
    root = Path(given["shared_root"])

    def work(stage: Callable[[], Staged]) -> dict[str, Any]:
        return without_root(root, lambda: result_of(stage))

    try:
        if given["state"] == "absent":
            result = work(lambda: snapshots.remove_snapshot(root, given["code_id"], check=check))
        else:
            git = Git(given["git_token"] or "", given["ssh_key"] or "")
            overlays = [(overlay["path"], overlay["to"]) for overlay in given["overlays"]]
            wanted = snapshots.Wanted(root, given["source"], given["code_id"], overlays, git)
            result = wanted.stage(StageOptions.of(given, check=check), work)
    except (StagingError, OSError) as error:
        module.fail_json(**failure(error))
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


def result_of(stage: Callable[[], Staged]) -> dict[str, Any]:
    """What the module returns of staging or removing a snapshot."""
    try:
        staged = stage()
        manifest = read_manifest(Path(staged.path))
    except (StagingError, OSError) as error:
        return {"failed": True, **failure(error)}
    return {"code_id": staged.name, **module_result(staged, manifest, ["verl_version"])}


if __name__ == "__main__":
    main()
