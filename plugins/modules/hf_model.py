#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
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
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
  - argus.verl.staged_item
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
      - It travels on standard input, and is in no file.
      - Without it, no token is used, not even one that is stored on the node.
    type: str
notes:
  - Runs C(argus stage) in the head's node, from its machine, as the user of the nodes. No module is sent, and the
    machine needs no Python. What takes longer than a moment goes on there if the connection breaks, and its progress is
    shown.
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
findings:
  description: The same for all problems, if several options are wrong.
  type: list
  elements: dict
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
