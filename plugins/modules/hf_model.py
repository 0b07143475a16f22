#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: a model under the shared root."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hf_model
short_description: Stage a model
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Stages a model at C(common/models/<name>/) under the shared root. A JobSpec refers to it by its name. The model
    comes from a repository of the HuggingFace hub or of a mirror, from a directory, or from the checkpoint of a job.
  - It is downloaded once for the whole cluster, pinned to a commit. Every file is compared with the size and the hash
    that the hub reports, so a truncated or damaged download never becomes a model.
  - It appears completely or not at all. Configuration, tokenizer, every shard of the index and the headers of the
    weights are checked before it gets its name.
  - A model from the hub is a relative link to a commit in the hub's own cache at C(hf/hub/), which is also the cache of
    jobs. It is on disk only once, even with several names.
  - An interrupted download continues when the module runs again. With plain HTTP, a file continues in steps of 10 MiB;
    with Xet, only complete files are kept.
  - If the model exists, no request is sent to the hub. Its files are compared with C(manifest.json), which has size and
    SHA-256 of each. The manifest of a link is beside it, as C(.<name>.manifest.json).
  - Runs inside a node, whose image has the libraries.
requirements:
  - python >= 3.11
  - huggingface_hub (for a source on the hub)
  - ray (for the checkpoint of a job)
  - torch, transformers and tokenizers (for V(tiny))
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.staging
attributes:
  check_mode:
    support: full
    details: Nothing is downloaded. For a new model, a request to the hub returns whether it exists and its size.
  diff_mode:
    support: full
options:
  name:
    description:
      - The name of the model, which is the C(model) of a JobSpec.
      - Matches C([A-Za-z0-9][A-Za-z0-9._-]{0,62}).
      - Required, unless O(source) is a job. Its default is then C(<submission_id>-step-<step>).
    type: str
  source:
    description:
      - One of the following.
      - A repository of the hub (V(Qwen/Qwen2.5-7B-Instruct)).
      - The absolute path of a directory that this node sees, with a model in the format of transformers. It is copied,
        by sharing blocks if the file system supports it. Links to files are followed; C(.git), C(.cache) and
        C(__pycache__) are excluded. As long as the directory exists, different file names or sizes are an error.
      - The checkpoint of a job (V(job:grpo-20260101-120000-1a2b@12)), without a step or with V(@0) the last complete
        one. verl's own C(model_merger), from the snapshot of the job, merges it on a worker with 2 CPUs and enough
        memory free. Only FSDP's checkpoints can be merged; of PPO, the actor is.
      - V(tiny) generates a random Qwen2 model with two layers. It shows that a job runs, not that a recipe works.
      - Required for O(state=present).
    type: str
  revision:
    description:
      - A branch, a tag, or a commit with all its 40 digits.
      - A branch or a tag is pinned to its commit when the model is first staged, and stays there when it moves.
    type: str
    default: main
  exclude:
    description:
      - Patterns of files to exclude, such as V(*.gguf) or V(onnx/*). A V(*) also matches slashes.
      - By default, if there are weights as C(model.safetensors) or shards of it, those in other formats. They are
        C(*.bin), C(*.pth), C(*.pt), C(*.h5), C(*.msgpack), C(*.ot), C(*.gguf), C(consolidated*.safetensors),
        C(onnx/*), C(original/*), C(openvino/*) and C(coreml/*). An empty list excludes nothing.
      - A C(manifest.json) at the top of a directory is always excluded, because the manifest has that name.
    type: list
    elements: str
  endpoint:
    description:
      - The address of the hub, or of a mirror that reports hashes as the hub does.
      - By default E(HF_ENDPOINT) of the node, or V(https://huggingface.co).
    type: str
  token:
    description:
      - The token for a private or gated repository. It is passed to the library only, and is in no message.
      - While the module runs, it is in the file in which Ansible passes the arguments, which only its owner can read.
      - Without it, no token is used, not even one that is stored on the node.
    type: str
seealso:
  - module: argus.verl.code_snapshot
  - module: argus.verl.rl_dataset
  - module: argus.verl.staged_info
"""

EXAMPLES = r"""
- name: Stage a model once for the whole cluster
  argus.verl.hf_model:
    name: Qwen2.5-7B-Instruct
    source: Qwen/Qwen2.5-7B-Instruct

- name: Stage a gated model at one commit
  argus.verl.hf_model:
    name: Llama-3.1-8B-Instruct
    source: meta-llama/Llama-3.1-8B-Instruct
    revision: 0e9e39f249a16976918f6564b8830bc894c89659
    token: "{{ vault_hf_token }}"

- name: Stage the checkpoint of a colleague
  argus.verl.hf_model:
    name: qwen-math-step-400
    source: /private/user/ann/checkpoints/global_step_400/actor/huggingface

- name: Export the last complete checkpoint of a job, as C(grpo-20260101-120000-1a2b-step-12)
  argus.verl.hf_model:
    source: job:grpo-20260101-120000-1a2b

- name: Verify all content, and restore damaged files
  argus.verl.hf_model:
    name: Qwen2.5-7B-Instruct
    source: Qwen/Qwen2.5-7B-Instruct
    verify: full
    repair: true

- name: Remove a model, and its files from the hub's cache
  argus.verl.hf_model:
    name: Qwen2.5-7B-Instruct
    state: absent
"""

RETURN = r"""
name:
  description: The name of the model.
  type: str
  returned: success
  sample: Qwen2.5-7B-Instruct
path:
  description: The directory of the model in this node.
  type: str
  returned: success
  sample: /private/common/models/Qwen2.5-7B-Instruct
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
commit:
  description: The commit of the repository.
  type: str
  returned: if the model exists and comes from the hub
  sample: a09a35458c702b33eeacc393d103063234e8bc28
bytes:
  description: The size of its files.
  type: int
  returned: if the model exists
  sample: 15242807296
source:
  description: Where the model comes from, with the step of a checkpoint.
  type: str
  returned: if the model exists
  sample: job:grpo-20260101-120000-1a2b@12
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.argus.staging import models
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.errors import StagingError, failure
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.manifest import read_manifest
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import OPTIONS, StageOptions
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.result import module_result
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.store import stage
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.users import users
from ansible_collections.argus.verl.plugins.module_utils.node_environment import enter_node
from ansible_collections.argus.verl.plugins.module_utils.privileges import without_root


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **OPTIONS,
            "name": {"type": "str"},
            "source": {"type": "str"},
            "revision": {"type": "str", "default": "main"},
            "exclude": {"type": "list", "elements": "str"},
            "endpoint": {"type": "str"},
            "token": {"type": "str", "no_log": True},
        },
        required_if=[("state", "present", ["source"]), ("state", "absent", ["name"])],
        supports_check_mode=True,
    )
    enter_node(module.fail_json)
    # A node can be a machine whose Ansible is root; a model from the internet is nothing for root.
    root = Path(module.params["shared_root"])
    result = without_root(root, lambda: result_of(root, module.params, check=module.check_mode))
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


def result_of(root: Path, given: Mapping[str, Any], *, check: bool) -> dict[str, Any]:
    """What the module returns."""
    try:
        if given["state"] == "absent":
            staged = models.remove_model(root, given["name"], lambda target: users(root, target), check=check)
        else:
            options = {name: given[name] for name in ("revision", "endpoint", "token", "exclude")}
            request = models.request(root, given["name"], models.source_of(given["source"], root, **options))
            staged = stage(request, StageOptions.of(given, check=check))
        manifest = read_manifest(Path(staged.path))
    except (StagingError, OSError) as error:
        return {"failed": True, **failure(error)}
    return {"name": staged.name, **module_result(staged, manifest, ["commit", "bytes", "source"])}


if __name__ == "__main__":
    main()
