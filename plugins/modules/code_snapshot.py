#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: an immutable snapshot of a verl source tree under the shared root."""

from __future__ import annotations

DOCUMENTATION = r"""
module: code_snapshot
short_description: Keep an immutable snapshot of a verl source tree under the shared root
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Puts one version of verl at C(common/code/verl/<code_id>/) under the shared root, where a training job selects it
    by its E(PYTHONPATH). Any number of them live side by side.
  - A snapshot is made once and never changes. It is read-only on disk, it appears whole or not at all, and when it
    exists already nothing is fetched or copied.
  - Besides C(verl/) a snapshot has C(mvp_marker.py), by which a job proves which snapshot it imported, and
    C(manifest.json) with the source, the version, the requirements, and size and SHA-256 of every file.
  - Runs on a machine that sees the shared root and, for a release, a package index. Nodes need neither.
requirements:
  - python >= 3.11
  - pip (for a source that is a release)
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is fetched, so that a release which the index does not have is not noticed.
  diff_mode:
    support: full
options:
  shared_root:
    description: The shared root, as this machine sees it. Nodes may see it at another path.
    type: path
    default: /private
  source:
    description:
      - Either one release, pinned exactly (V(verl==0.9.1)), or a directory on this machine in which C(verl/) lies.
      - Of a directory the packages C(verl/), C(recipe/) and C(examples/) are taken, without C(.git), caches and
        C(*.egg-info). Links to files are followed.
      - A release is fetched as a wheel, by the C(pip) of the Python that runs this module, as it is configured.
    type: str
    required: true
  code_id:
    description:
      - The name of the snapshot, which a JobSpec gives as its C(code_path).
      - Matches C([A-Za-z0-9][A-Za-z0-9._-]{0,62}).
      - By default C(verl-<version>) for a release, and C(verl-<version>-<start of the SHA-256 of its content>) for a
        directory, so that a changed directory becomes another snapshot.
    type: str
seealso:
  - module: argus.verl.tiny_assets
"""

EXAMPLES = r"""
- name: Keep two releases of verl side by side
  argus.verl.code_snapshot:
    shared_root: /srv/verl
    source: "{{ item }}"
  loop: [verl==0.9.0, verl==0.9.1]

- name: Keep the checkout of a colleague under a name of its own
  argus.verl.code_snapshot:
    shared_root: /srv/verl
    source: /home/ann/src/verl
    code_id: ann-longer-rollouts
"""

RETURN = r"""
code_id:
  description: The name of the snapshot.
  type: str
  returned: success
  sample: verl-0.9.1
path:
  description: The directory of the snapshot, as this machine sees it.
  type: str
  returned: success
  sample: /srv/verl/common/code/verl/verl-0.9.1
status:
  description: V(staged) when it was made now, or would be in check mode; V(exists) when it was there already.
  type: str
  returned: success
  sample: staged
verl_version:
  description: The version of verl that the source names.
  type: str
  returned: success
  sample: 0.9.1
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.snapshots import snapshot, source_of
from ansible_collections.argus.verl.plugins.module_utils.staging import STAGED, StagingError, difference


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "shared_root": {"type": "path", "default": "/private"},
            "source": {"type": "str", "required": True},
            "code_id": {"type": "str"},
        },
        supports_check_mode=True,
    )
    try:
        source = source_of(module.params["source"])
        staged = snapshot(Path(module.params["shared_root"]), source, module.params["code_id"], check=module.check_mode)
    except (StagingError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=staged.status == STAGED,
        code_id=staged.name,
        path=staged.path,
        status=staged.status,
        verl_version=source.verl_version,
        diff=difference([staged]),
    )


if __name__ == "__main__":
    main()
