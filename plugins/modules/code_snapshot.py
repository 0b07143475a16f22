#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The action plugin of the same name does the work.
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
  - Runs on the machine of a node, preferably of the head, which has access to the source and needs Python 3.11, C(pip)
    for a source that is a release, and C(git) for a repository. It only reads the source. The program of jobs writes
    the snapshot in the node, as the nodes' user. If the node does not run, a container of its image does.
  - Sources and overlays on the shared root are read in the node.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
  - argus.verl.staged_item
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
      - The absolute path of a directory on the machine that contains C(verl/). For a git checkout, the snapshot records
        the commit, and uncommitted changes as C(uncommitted.patch). For one on the shared root, the node needs C(git).
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
    default: ""
  overlays:
    description: Directories of your own to add to the snapshot, in this order. Each replaces files that exist.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The directory on the machine.
        type: str
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
    description: The private key on the machine for a repository over SSH. By default, C(ssh) selects it.
    type: str
seealso:
  - module: argus.verl.staged_info
"""

EXAMPLES = r"""
- name: Stage two releases of verl side by side
  argus.verl.code_snapshot:
    source: "{{ item }}"
  loop: [verl==0.9.0, verl==0.9.1]

- name: Stage the checkout of a colleague under its own name
  argus.verl.code_snapshot:
    source: /home/ann/src/verl
    code_id: ann-longer-rollouts

- name: Add your own recipe to a release
  argus.verl.code_snapshot:
    source: verl-0.9.1
    overlays: [{path: /home/ann/recipes/dapo2, to: recipe/dapo2}]

- name: Stage a commit of a private repository
  argus.verl.code_snapshot:
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
  description: The directory of the snapshot, as nodes see it.
  type: str
  returned: success
  sample: /private/common/code/verl/verl-0.9.1
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
