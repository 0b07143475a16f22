#!/usr/bin/python

# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image
short_description: "Internal: build or pull an image of nodes, or copy it between machines"
version_added: 0.2.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - With O(state=built), builds an image from a directory on the controller, which travels as one tar file.
  - With O(state=pulled), pulls an image from its registry.
  - With O(state=saved), writes an image to the shared root, as the nodes' user.
  - With O(state=loaded), copies such a file to the machine, and loads the copy if it has O(sha256) and holds O(image),
    and no other image.
  - With O(state=removed), removes the file.
  - The role decides what is necessary. The module always does what it is asked for.
requirements:
  - Python 3.9 or later on the machine
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
    description: What is done with the image.
    type: str
    choices: [built, pulled, saved, loaded, removed]
    required: true
  image:
    description: The name of the image.
    type: str
    required: true
  engine:
    description: The command of the container engine.
    type: str
    default: docker
  build:
    description: How the image is built, with O(state=built).
    type: dict
    suboptions:
      context:
        description:
          - The directory of the build on the controller. On the machine, it is the path of a tar file.
        type: path
        required: true
      dockerfile:
        description: The path of the Dockerfile in the context.
        type: str
        required: true
      args:
        description: The build arguments.
        type: dict
        default: {}
      push:
        description: Whether the image is pushed to the registry in its name.
        type: bool
        default: false
      inputs:
        description: The hash of what the image is built from. It becomes a label of the image.
        type: str
        required: true
  shared_root:
    description:
      - The shared root as the machine sees it. With O(state=loaded), only if the file is below it.
    type: path
  cluster:
    description: The name of the cluster, with O(state=saved).
    type: str
  path:
    description: The file, with O(state=loaded) and O(state=removed).
    type: path
  sha256:
    description: The SHA-256 that the file has to have, with O(state=loaded).
    type: str
  id:
    description: The id of the image in the file, if it is known.
    type: str
    default: ""
  tags:
    description: The names that the file may have besides O(image).
    type: list
    elements: str
    default: []
  number:
    description: The number of this machine among O(count), for the line of progress.
    type: int
    default: 1
  count:
    description: How many machines load the image.
    type: int
    default: 1
"""

EXAMPLES = r"""
- name: Copy an image to the other machines
  argus.verl.node_image:
    state: saved
    image: argus-verl-cpu:0.1.0
    shared_root: /private
    cluster: mvp
  register: saved
"""

RETURN = r"""
id:
  description: The id of the image.
  returned: if it was built, saved or loaded
  type: str
path:
  description: The file.
  returned: with O(state=saved)
  type: str
sha256:
  description: The SHA-256 of what was written.
  returned: with O(state=saved)
  type: str
bytes:
  description: The size of the file.
  returned: if it was saved or loaded
  type: int
seconds:
  description: How long it took.
  returned: always
  type: float
labels:
  description: The labels of the image.
  returned: if it was pulled
  type: dict
output:
  description: The last lines of the engine.
  returned: if a build or a pull fails
  type: list
  elements: str
"""

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.image_archive import (
    ImageError,
    ImageStore,
    Saved,
    remove_saved,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.image_build import build_image, pull_image

BUILD = {
    "context": {"type": "path", "required": True},
    "dockerfile": {"type": "str", "required": True},
    "args": {"type": "dict", "default": {}},
    "push": {"type": "bool", "default": False},
    "inputs": {"type": "str", "required": True},
}


def done(params: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked for, and return what became of it."""
    store, image, state = ImageStore(params["engine"]), params["image"], params["state"]
    root = Path(params["shared_root"]) if params["shared_root"] else None
    if state == "built":
        return build_image(store, image, params["build"])
    if state == "pulled":
        return pull_image(store, image)
    if state == "loaded":
        saved = Saved(params["path"], params["sha256"], id=params["id"])
        loaded = store.load(saved, image, params["tags"], root)
        return {"id": loaded.id, "bytes": loaded.bytes}
    if root is None:
        raise ImageError("shared_root is missing")
    if state == "saved":
        written = store.save(image, root, params["cluster"])
        return {"path": written.path, "sha256": written.sha256, "bytes": written.bytes, "id": written.id}
    return {"changed": remove_saved(params["path"], root)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["built", "pulled", "saved", "loaded", "removed"], "required": True},
            "image": {"type": "str", "required": True},
            "engine": {"type": "str", "default": "docker"},
            "build": {"type": "dict", "options": BUILD},
            "shared_root": {"type": "path"},
            "cluster": {"type": "str"},
            "path": {"type": "path"},
            "sha256": {"type": "str"},
            "id": {"type": "str", "default": ""},
            "tags": {"type": "list", "elements": "str", "default": []},
            "number": {"type": "int", "default": 1},
            "count": {"type": "int", "default": 1},
        },
        required_if=[
            ("state", "built", ["build"]),
            ("state", "saved", ["shared_root", "cluster"]),
            ("state", "loaded", ["path", "sha256"]),
            ("state", "removed", ["path", "shared_root"]),
        ],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, seconds=0.0)
    began = time.monotonic()
    try:
        result = {"changed": True, **done(module.params)}
    except ImageError as error:
        module.fail_json(msg=str(error), output=error.output)
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result, seconds=round(time.monotonic() - began, 1))


if __name__ == "__main__":
    main()
