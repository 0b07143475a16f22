#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: rl_dataset
short_description: Stage a dataset for verl
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Stages C(train.parquet) and C(val.parquet) at C(datasets/<name>/) under the shared root. A JobSpec refers to them by
    the name of the dataset.
  - A dataset is created once and never changes. It appears completely or not at all. If it already exists, its files
    are compared with its manifest, and its options with those with which it was staged.
  - With O(state=absent), files from O(hub) are also removed from the hub's cache, unless another dataset needs the same
    commit.
  - Rows come from files in the node, from a dataset repository of HuggingFace, from one of verl's own preprocessing
    scripts, or they are generated (O(tiny)). If they do not have verl's schema, O(columns) maps their columns to it.
  - Every row is checked. If there are errors, nothing is staged, and all of them are reported together with split, rows
    and values. Errors are messages without a role or content, prompts that end with an answer, conversations for SFT
    without an answer, and rows without C(data_source) or ground truth.
  - Warnings are stored in C(manifest.json). They are unknown roles, equal rows, prompts of C(val) that are also in
    C(train), and prompts that are longer than O(max_prompt_length).
  - Rows are counted from 0 over all files of a split, before O(val_rows) are moved.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
  - argus.verl.staged_item
attributes:
  check_mode:
    support: full
    details: Nothing is read, downloaded or run. A missing source is still an error; for O(hub), a request is sent.
  diff_mode:
    support: full
options:
  name:
    description:
      - The name of the dataset, which is the C(dataset) of a JobSpec.
      - Matches C([a-z0-9][a-z0-9._-]{0,62}).
    type: str
    required: true
  workload:
    description: PPO and GRPO read V(rl), with a column C(prompt). SFT reads V(sft), with a column C(messages).
    type: str
    choices: [rl, sft]
    default: rl
  files:
    description:
      - The files with the rows. O(from) tells where they are. With O(hub), paths in the repository.
      - Each may be a pattern (V(/private/raw/train-*.parquet)). Its matches are read in the order of their names.
      - Names end with C(.parquet), C(.jsonl), C(.json) (one object per line, or one list) or C(.csv) (with names in the
        first line, and all values as text). All but the first may be compressed (C(.gz), C(.bz2), C(.zst)).
      - A column that some of the files lack is empty in their rows. A column with incompatible types is an error.
      - If the dataset exists, files are compared by path, size and modification time; those of the controller by name,
        size and content, which is read if the modification time differs. Files that no longer exist are not an error.
    type: dict
    suboptions:
      train:
        description: The files with the training rows.
        type: list
        elements: str
        required: true
      val:
        description: The files with the validation rows. Without it, O(val_rows) is required.
        type: list
        elements: str
  from:
    description:
      - Where O(files) are. Those of the controller are sent, unless the dataset exists.
      - V(controller) is the machine that runs Ansible. A relative path begins at the directory of the inventory.
      - V(shared_root) is the shared root. A relative path begins there; an absolute one is that of the nodes.
      - V(node) is the head's node. Paths are absolute.
      - By default, relative paths (also V(~/…\)) are those of the controller, absolute ones those of the node.
    type: str
    choices: [controller, shared_root, node]
  hub:
    description:
      - A dataset repository of HuggingFace (V(openai/gsm8k)), with the O(files) to use. None of its code is run.
      - Downloads are compared with the hashes that the hub reports, and stay in its cache at C(hf/hub/) under the
        shared root.
    type: str
  revision:
    description:
      - A branch, a tag or a commit of the repository. The manifest records the commit. A branch that moves later
        changes nothing, and no request is sent if the dataset exists.
    type: str
    default: main
  endpoint:
    description:
      - The address of a mirror or of your own server. By default E(HF_ENDPOINT) of the node, or
        V(https://huggingface.co).
      - O(script) gets it as E(HF_ENDPOINT).
    type: str
  token:
    description:
      - The token for a private or gated repository. It is in no message.
      - O(script) gets it as E(HF_TOKEN); without it, the script inherits that of the node.
      - It travels on standard input, and is in no file.
    type: str
  script:
    description:
      - The name of one of verl's own scripts in C(examples/data_preprocess/) of a snapshot, such as V(gsm8k.py),
        V(math_dataset.py) or V(gsm8k_multiturn_sft.py).
      - It runs with the snapshot's verl, and with C(hf/) under the shared root as E(HF_HOME), where its downloads stay.
      - Its output C(test.parquet) or C(validation.parquet) becomes C(val.parquet); other files are removed.
    type: str
  code_path:
    description:
      - The snapshot that contains O(script), a code id or an absolute path. Snapshots of a release have no scripts.
    type: str
  arguments:
    description:
      - Further arguments of O(script), such as C(--local_dataset_path). The option for its output is always set, by the
        name that the script uses (C(--local_save_dir), up to verl 0.5 C(--local_dir)).
    type: list
    elements: str
  tiny:
    description: Generate 128 and 16 word problems of addition (32 for O(workload=sft)), for a smoke test.
    type: bool
    default: false
  columns:
    description:
      - Which columns of the files have which role. Without it, the rows must have verl's schema and are not converted.
    type: dict
    suboptions:
      prompt:
        description: The prompt, as text or as a list of C({role, content}).
        type: str
      ground_truth:
        description: The value that the reward function compares, for O(workload=rl). Numbers become text.
        type: str
      data_source:
        description: The name by which verl selects the reward function, if rows have different ones.
        type: str
      ability:
        description: The kind of task, if rows have different ones.
        type: str
      extra:
        description:
          - Further columns to keep under their names. For O(workload=rl) they are in C(extra_info), beside C(split) and
            C(index), which are always added.
        type: list
        elements: str
      messages:
        description: For O(workload=sft), the conversation, a list of C({role, content}).
        type: str
      response:
        description: For O(workload=sft) with O(columns.prompt), the answer of the assistant.
        type: str
  data_source:
    description:
      - The same text in all rows. verl selects the reward function by it, so it must be a name that verl knows
        (V(openai/gsm8k)), unless the job has its own reward function.
      - Required for O(workload=rl) with O(columns), unless O(columns.data_source) is given.
    type: str
  ability:
    description: The same text in all rows. With O(columns) it is empty by default.
    type: str
  system_prompt:
    description: A system message to put before each prompt. A prompt that already has one is an error.
    type: str
  instruction:
    description:
      - Text to append to each prompt, such as V(Let's think step by step and output the final answer after "####".).
      - A space is inserted before it, unless it begins with white space.
    type: str
  ground_truth_pattern:
    description:
      - A regular expression of Python with one group. The group of the last match is the ground truth
        (V(#### (.+\))). It is not changed, and keeps the commas of a number. Rows without a match are an error.
    type: str
  ground_truth_remove:
    description:
      - Characters to remove from the ground truth, such as V(",").
      - verl's reward function for C(openai/gsm8k) removes the commas from the model's numbers, and compares text.
    type: str
  val_rows:
    description:
      - How many rows of C(train) become C(val), if there are no files for it. They are spread evenly over all rows,
        including the first, and are the same every time.
    type: int
  model:
    description:
      - The model whose tokenizer and chat template measure prompts, a staged model or an absolute path.
      - If the dataset exists but was not measured with this model and O(max_prompt_length), its rows are checked once
        more. The dataset does not change; its manifest stores the result.
    type: str
  max_prompt_length:
    description:
      - How many tokens a prompt may have (C(data.max_prompt_length) of the job), or for O(workload=sft) a conversation
        (C(data.max_length)). Longer ones are a warning. verl drops them or stops, depending on its settings.
      - Only rows whose text has more bytes than this are tokenized. Rows with images are not measured.
    type: int
notes:
  - Runs C(argus stage) in the head's node, from its machine, as the user of the nodes. No module is sent, and the
    machine needs no Python. What takes longer than a moment goes on there if the connection breaks, and its progress is
    shown.
seealso:
  - module: argus.verl.code_snapshot
  - module: argus.verl.staged_info
"""

EXAMPLES = r"""
- name: Stage GSM8K with verl's own script, from the hub
  argus.verl.rl_dataset:
    name: gsm8k
    script: gsm8k.py
    code_path: verl-0123456789ab

- name: Convert your own questions and answers to verl's schema
  argus.verl.rl_dataset:
    name: sums
    files:
      train: [/private/raw/sums/train-*.jsonl.gz]
      val: [/private/raw/sums/test.jsonl]
    columns: {prompt: question, ground_truth: answer, extra: [level]}
    data_source: openai/gsm8k
    instruction: Let's think step by step and output the final answer after "####".
    ground_truth_pattern: '#### (\S+)'
    ground_truth_remove: ","
    model: Qwen2.5-0.5B-Instruct
    max_prompt_length: 512

- name: Upload a file beside the inventory, and stage it
  argus.verl.rl_dataset:
    name: chats
    workload: sft
    files: {train: [data/chats.jsonl]}
    columns: {messages: conversation}
    val_rows: 100

- name: Stage conversations from a repository, with 500 of them for validation
  argus.verl.rl_dataset:
    name: chats
    workload: sft
    hub: team/chats
    revision: v2
    token: "{{ vault_hf_token }}"
    files: {train: [data/train-*.parquet]}
    columns: {messages: conversation}
    val_rows: 500

- name: Generate a dataset for a smoke test
  argus.verl.rl_dataset:
    name: gsm8k-tiny
    tiny: true
"""

RETURN = r"""
name:
  description: The name of the dataset.
  type: str
  returned: success
  sample: gsm8k
path:
  description: The directory of the dataset in this node.
  type: str
  returned: success
  sample: /private/datasets/gsm8k
status:
  description:
    - V(staged) if it is new, V(exists) if it existed and fits its manifest, V(repaired) if files were restored,
      V(removed) and V(absent) for O(state=absent). In check mode, what it would be.
  type: str
  returned: success
  sample: staged
notes:
  description: The repaired files, one line each. If the dataset is new or was measured now, the RV(report) as well.
  type: list
  elements: str
  returned: success
  sample: []
finding:
  description: The problem (C(what)), its place (C(where)) and what to do about it (C(todo)).
  type: dict
  returned: failure
findings:
  description: The same for all problems, if several options are wrong.
  type: list
  elements: dict
  returned: failure
rows:
  description: The number of rows of each split.
  type: dict
  returned: if the dataset exists
  sample: {train: 7473, val: 1319}
report:
  description: The warnings for its rows, one line each with split, rows and values.
  type: list
  elements: str
  returned: if the dataset exists
  sample:
    - "train: has the same prompt as an earlier row: 1 row, counted from 0: 17 (as 3)"
"""
