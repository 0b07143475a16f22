#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: stage
short_description: Stage models, datasets, snapshots of verl and Python files
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Puts on the shared root what jobs need, each item once, and shows a table of all items. Items that exist already are
    compared with their manifests.
  - Checks the options of all items first. After that, an item that is refused does not keep the others from being
    staged. The task then fails in the end.
  - Models become C(common/models/<name>/), datasets C(datasets/<name>/), snapshots C(common/code/verl/<code_id>/), and
    Python files are copied to C(user/code/).
  - An item appears completely or not at all, even if the process is killed, and never changes afterwards. Processes
    that stage the same item wait for each other. Files of the Hugging Face hub are compared with the sizes and hashes
    that the hub reports. Every row of a dataset is checked.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
    details: Nothing is downloaded, read or run. Only the hub, or the repository of a branch, is asked.
  diff_mode:
    support: full
    details: Only if no item is refused.
options:
  models:
    description: Models to stage, as C(staging_models) of the role C(staging), whose README has all options of items.
    type: list
    elements: raw
    default: []
  datasets:
    description: Datasets to stage, as C(staging_datasets).
    type: list
    elements: raw
    default: []
  snapshots:
    description: Versions of verl to stage, as C(staging_snapshots).
    type: list
    elements: raw
    default: []
  user_code:
    description:
      - Files of the controller, such as reward functions, or directories with at most 200 files. Of a path that ends
        with a slash, the contents of the directory are copied. C(.git), C(__pycache__) and compiled files are excluded.
        A file that differs is replaced at once, even while jobs use it.
    type: list
    elements: raw
    default: []
  hf_endpoint:
    description:
      - The address of the hub, or of a mirror that reports hashes as the hub does. By default E(HF_ENDPOINT) of the
        node, or V(https://huggingface.co).
    type: str
    default: ""
  hf_token:
    description:
      - The token for private or gated repositories of the hub. It travels on standard input, and is never written to a
        file or a message. Without it, no token is used, not even one that is stored on the node.
    type: str
    default: ""
  repair:
    description:
      - Restore files that no longer match the manifest. Without it, such files are an error that names them. Files that
        were added to an item are always an error, and are never changed.
    type: bool
    default: false
  verify:
    description:
      - How existing files are compared with their manifest. V(quick) reads only files whose size or modification time
        has changed, V(full) all of them.
    type: str
    choices: [quick, full]
    default: quick
  report:
    description: Show the table. Otherwise, the message of the task says why items are refused.
    type: bool
    default: true
notes:
  - Runs C(argus stage) in the head's node, from its machine, as the user of the nodes. No module is sent, and the
    machine needs no Python. Long staging shows its progress, and continues on the machine if the connection breaks.
  - The controller reads the sources of snapshots. It needs C(pip) for a release and C(git) for a repository. If the
    node does not run, a container of its image writes snapshots.
"""

EXAMPLES = r"""
- name: Stage what a first job needs
  argus.verl.stage:
    models:
      - {name: Qwen2.5-7B-Instruct, source: Qwen/Qwen2.5-7B-Instruct}
    datasets:
      - name: sums
        files: {train: [/private/raw/sums/train-*.jsonl.gz], val: [/private/raw/sums/test.jsonl]}
        columns: {prompt: question, ground_truth: answer, extra: [level]}
        data_source: openai/gsm8k
        instruction: Let's think step by step and output the final answer after "####".
        ground_truth_pattern: '#### (\S+)'
    snapshots:
      - source: verl==0.9.1
      - {source: verl-0.9.1, overlays: [{path: /home/ann/recipes/dapo2, to: recipe/dapo2}]}
    user_code: [/home/ann/rewards/reward.py]
    hf_token: "{{ vault_hf_token }}"

- name: Upload a file beside the inventory, and stage it
  argus.verl.stage:
    datasets:
      - name: chats
        workload: sft
        files: {train: [data/chats.jsonl]}
        columns: {messages: conversation}
        val_rows: 100

- name: Verify all content of a model, and restore damaged files
  argus.verl.stage:
    models: [{name: Qwen2.5-7B-Instruct, source: Qwen/Qwen2.5-7B-Instruct}]
    verify: full
    repair: true

- name: Export the last complete checkpoint of a job, and remove a snapshot
  argus.verl.stage:
    models: [{source: "job:grpo-20260101-120000-1a2b"}]
    snapshots: [{code_id: verl-0.9.0, state: absent}]
"""

RETURN = r"""
staged:
  description: All items.
  type: list
  elements: dict
  returned: if the node has answered
  contains:
    kind:
      description: V(model), V(dataset), V(snapshot) or V(user_code).
      type: str
    name:
      description: Its name.
      type: str
    path:
      description: Its path in the node; V(-) if it is refused.
      type: str
    status:
      description:
        - V(staged) if it is new, V(exists) if it existed and matches its manifest, V(repaired) if files were restored,
          V(removed) and V(absent) for C(state=absent), V(refused) if findings say why not. In check mode, what the
          status would be.
      type: str
    changed:
      description: Whether it has changed.
      type: bool
    notes:
      description: The repaired files, and the warnings for the rows of a dataset that is new or was measured now.
      type: list
      elements: str
    commit:
      description: The commit of a repository of the hub.
      type: str
    bytes:
      description: The size of its files.
      type: int
    source:
      description: Where it comes from, with the step of a checkpoint.
      type: str
    rows:
      description: The number of rows of each split of a dataset.
      type: dict
    report:
      description: The warnings for the rows of a dataset, one line each with split, rows and values.
      type: list
      elements: str
    verl_version:
      description: The version of verl in a snapshot.
      type: str
findings:
  description:
    - Why items are refused, and notes on others, each with the item (C(where)), C(problem), C(remedy) and C(severity).
  type: list
  elements: dict
  returned: if the node has answered
"""
