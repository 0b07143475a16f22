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
  - Stages on the shared root what jobs need, each item once, and shows a table of all items. Existing items are
    compared with their manifests. Options of all items are checked first. Then, an item that is refused does not keep
    the others from being staged; the task fails in the end.
  - Models become C(common/models/<name>/), datasets C(datasets/<name>/), snapshots C(common/code/verl/<code_id>/), and
    Python files are copied to C(user/code/).
  - An item appears completely or not at all, even if the process is killed, and never changes. Processes that stage the
    same item wait for each other. Files of the hub are compared with the sizes and hashes that it reports, and every
    row of a dataset is checked.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
    details: Nothing is downloaded, read or run. A hub, or the repository of a branch, is asked.
  diff_mode:
    support: full
    details: Of a task without a refused item.
options:
  # begin generated: from argus/staging/items.py, by make generate
  models:
    description: Models to stage.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name of the model, which is the C(model) of a JobSpec. Letters, digits,
          C(.), C(_) and C(-), at most 63 characters. Required, unless C(source) is a job. Its
          default is then C(<submission_id>-step-<step>).
        type: str
      source:
        description: A repository of the hub (C(Qwen/Qwen2.5-7B-Instruct)); the absolute path
          of a directory that the node sees, in the format of transformers, which is copied
          without C(.git), C(.cache) and C(__pycache__); a checkpoint of a job (C(job:grpo-20260101-120000-1a2b@12),
          without a step the last complete one), which verl's C(model_merger) merges on a worker;
          or C(tiny), a random model of two layers. Required unless C(state=absent).
        type: str
      revision:
        description: A branch, a tag or a commit of 40 digits. A branch or a tag is pinned to
          its commit when the model is first staged.
        type: str
        default: main
      exclude:
        description: Patterns of files to leave out, such as C(*.gguf) or C(onnx/*). A C(*)
          also matches slashes. By default, weights in other formats if there are safetensors.
          An empty list leaves nothing out.
        type: list
        elements: str
      state:
        description: C(present) creates it once, or verifies it if it exists. C(absent) removes
          it, unless a job that has not ended uses it.
        type: str
        choices:
        - present
        - absent
        default: present
  datasets:
    description: Datasets to stage.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name of the dataset, which is the C(dataset) of a JobSpec. Lowercase
          letters, digits, C(.), C(_) and C(-), at most 63 characters.
        type: str
        required: true
      workload:
        description: C(rl) for PPO and GRPO, with a column C(prompt); C(sft) for SFT, with a
          column C(messages).
        type: str
        choices:
        - rl
        - sft
        default: rl
      files:
        description: The files with the rows, as paths or patterns. C(from) tells where they
          are; with C(hub), they are paths in the repository. Names end with C(.parquet), C(.jsonl),
          C(.json) or C(.csv); all but the first may be compressed (C(.gz), C(.bz2), C(.zst)).
          A column that some of the files lack is empty in their rows.
        type: dict
        suboptions:
          train:
            description: The files with the training rows.
            type: list
            elements: str
            required: true
          val:
            description: The files with the validation rows. For C(workload=rl), they or C(val_rows)
              are required.
            type: list
            elements: str
            default: []
      from:
        description: Where C(files) are. C(controller) is the machine that runs Ansible, which
          sends them unless the dataset exists; relative paths begin at the directory of the
          inventory. C(shared_root) is the shared root; relative paths begin there. C(node)
          is the head's node, with absolute paths. By default, relative paths are those of the
          controller, absolute ones those of the node.
        type: str
        choices:
        - controller
        - shared_root
        - node
      hub:
        description: A dataset repository of the hub (C(openai/gsm8k)), with the C(files) to
          use. None of its code is run.
        type: str
      revision:
        description: A branch, a tag or a commit of the repository. A branch is pinned to its
          commit when the dataset is first staged.
        type: str
        default: main
      script:
        description: One of verl's own scripts in C(examples/data_preprocess/) of a snapshot,
          such as C(gsm8k.py). It runs with the snapshot's verl. Its C(test.parquet) or C(validation.parquet)
          becomes C(val.parquet).
        type: str
      code_path:
        description: The snapshot that contains C(script), a code id or an absolute path. Snapshots
          of a release have no scripts.
        type: str
      arguments:
        description: Further arguments of C(script), such as C(--local_dataset_path). The option
          for its output is always set.
        type: list
        elements: str
        default: []
      tiny:
        description: Generate 128 and 16 word problems of addition (32 for C(workload=sft)),
          for a smoke test.
        type: bool
        default: false
      columns:
        description: Which columns of C(files) have which role; C(tools), C(images), C(videos)
          and C(audios) come along. Without it, the rows must have verl's schema and are not
          converted, or for C(workload=sft) the form of ShareGPT or Alpaca.
        type: dict
        suboptions:
          prompt:
            description: The prompt, as text or as a list of C({role, content}).
            type: str
          ground_truth:
            description: The value that the reward function compares, for C(workload=rl). Numbers
              become text.
            type: str
          data_source:
            description: The name by which verl selects the reward function, if rows have different
              ones.
            type: str
          ability:
            description: The kind of task, if rows have different ones.
            type: str
          messages:
            description: For C(workload=sft), the conversation, a list of C({role, content})
              or C({from, value}).
            type: str
          response:
            description: For C(workload=sft) with C(prompt), the answer of the assistant.
            type: str
          extra:
            description: Further columns to keep under their names. For C(workload=rl) they
              are in C(extra_info), beside C(split) and C(index), which are always added.
            type: list
            elements: str
            default: []
      data_source:
        description: The same text in all rows, by which verl selects the reward function (C(openai/gsm8k)).
          Required for C(workload=rl) with C(columns), unless C(columns.data_source) is given.
        type: str
      ability:
        description: The same text in all rows. With C(columns) it is empty by default.
        type: str
      system_prompt:
        description: A system message to put before each prompt. A prompt that already has one
          is an error.
        type: str
      instruction:
        description: Text to append to each prompt. A space is inserted before it, unless it
          begins with white space.
        type: str
      ground_truth_pattern:
        description: A regular expression of Python with one group. The group of the last match
          is the ground truth. Rows without a match are an error.
        type: str
      ground_truth_remove:
        description: Characters to remove from the ground truth, such as C(,).
        type: str
      val_rows:
        description: How many rows of C(train) become C(val), if there are no files for it.
          They are spread evenly, and are the same every time.
        type: int
      state:
        description: C(present) creates it once, or verifies it if it exists. C(absent) removes
          it, unless a job that has not ended uses it.
        type: str
        choices:
        - present
        - absent
        default: present
  snapshots:
    description: Versions of verl to stage.
    type: list
    elements: dict
    default: []
    suboptions:
      source:
        description: A release (C(verl==0.9.1)), whose wheel the controller's C(pip) downloads;
          a repository with a branch, a tag or a commit of 40 digits (C(git+https://<host>/<path>@<ref>),
          C(git+ssh://git@<host>/<path>@<ref>)), which the controller's C(git) fetches; the
          path of a directory of the controller, or of the shared root, that contains C(verl/);
          or the code id of a snapshot, to add C(overlays) to it. Required unless C(state=absent).
        type: str
      code_id:
        description: The name of the snapshot, which is the C(code_path) of a JobSpec. By default,
          derived from the source. Required with C(state=absent).
        type: str
        default: ''
      overlays:
        description: Directories of your own to copy over the snapshot, in this order. Each
          replaces files that exist.
        type: list
        elements: dict
        suboptions:
          path:
            description: The directory, of the controller or of the shared root.
            type: str
            required: true
          to:
            description: The destination of its files, relative to the snapshot, such as C(recipe/mine).
            type: str
            required: true
        default: []
      ssh_key:
        description: A private key on the controller, for a repository over SSH. By default,
          C(ssh) selects it.
        type: str
      state:
        description: C(present) creates it once, or verifies it if it exists. C(absent) removes
          it, unless a job that has not ended uses it.
        type: str
        choices:
        - present
        - absent
        default: present
  # end generated
  user_code:
    description:
      - Files of the controller, such as reward functions, or directories with at most 200 files. With a slash at its
        end, the contents of a directory are copied. C(.git), C(__pycache__) and compiled files are excluded. Each file
        that differs is replaced at once, also while jobs use it.
    type: list
    elements: str
    default: []
  hf_endpoint:
    description:
      - The address of the hub, or of a mirror that reports hashes as the hub does. By default E(HF_ENDPOINT) of the
        node, or V(https://huggingface.co). Scripts of datasets get it too.
    type: str
    default: ""
  hf_token:
    description:
      - The token for private or gated repositories of the hub. It travels on standard input, is in no file and in no
        message, and scripts of datasets get it too. Without it, no token is used, not even one that is stored on the
        node.
    type: str
    default: ""
  git_token:
    description: The token for private repositories over HTTPS. It is only passed in the environment of C(git).
    type: str
    default: ""
  repair:
    description:
      - Restore files that no longer fit the manifest. Without it, they are an error that names them. Files that were
        added are never changed, and are always an error.
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
    machine needs no Python. What takes longer than a moment goes on there if the connection breaks, and its progress is
    shown.
  - The controller reads the sources of snapshots. It needs C(pip) for a release and C(git) for a repository. If the
    node does not run, a container of its image writes snapshots.
seealso:
  - module: argus.verl.staged_info
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
        - V(staged) if it is new, V(exists) if it existed and fits its manifest, V(repaired) if files were restored,
          V(removed) and V(absent) for C(state=absent), V(refused) if findings say why not. In check mode, what it would
          be.
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
    - Why items are refused, and notes on others, each with the item (C(where)), C(what), C(todo) and C(severity).
  type: list
  elements: dict
  returned: if the node has answered
"""
