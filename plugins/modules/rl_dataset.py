#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: a dataset under the shared root, in verl's form and checked row by row."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rl_dataset
short_description: Keep a dataset for verl under the shared root, with every row checked
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Puts C(train.parquet) and C(val.parquet) at C(datasets/<name>/) under the shared root, where a training job finds
    them by the name of the dataset.
  - A dataset is made once and never changes. It appears whole or not at all, and when it exists already its files are
    compared with its manifest, and its options with those it was made with.
  - With O(state=absent), what came from O(hub) also goes from the hub's cache, unless another dataset is of the same
    commit.
  - Rows come from files in the node, from a dataset repository of HuggingFace, from one of verl's own preprocess
    scripts, or they are made up (O(tiny)). Where they are not in verl's form, O(columns) says which of them are what.
  - Every row is checked. Errors name split, rows and values, all at once, and nothing is staged. They are messages
    without a known role or without content, prompts that end with an answer, conversations for SFT without one, and
    rows without C(data_source) or ground truth.
  - Warnings are kept in C(manifest.json). They are rows that are there twice, prompts of C(val) that are in C(train)
    too, and prompts that are longer than O(max_prompt_length).
  - Rows are counted from 0 over all files of a split, before O(val_rows) are taken out.
  - Runs inside a node, whose image has the libraries. They are imported only when something is made.
requirements:
  - python >= 3.11
  - pyarrow >= 20
  - huggingface_hub (for O(hub))
  - what the script imports (for O(script))
  - transformers (for O(model))
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.staging
attributes:
  check_mode:
    support: full
    details: Nothing is read, fetched or run. What is not there is an error all the same; a repository is asked for it.
  diff_mode:
    support: full
options:
  name:
    description:
      - The name of the dataset, which a JobSpec gives as its C(dataset).
      - Matches C([a-z0-9][a-z0-9._-]{0,62}).
    type: str
    required: true
  workload:
    description: What it is for. PPO and GRPO read V(rl), with a column C(prompt); SFT reads V(sft), with C(messages).
    type: str
    choices: [rl, sft]
    default: rl
  files:
    description:
      - The files with the rows, absolute paths in the node. With O(hub), paths in the repository.
      - Each may be a pattern (V(/private/raw/train-*.parquet)). What matches one is taken in the order of its names.
      - Their names end with C(.parquet), C(.jsonl), C(.json) (an object a line, or one list) or C(.csv) (with names in
        its first line, and everything text). All but the first may be compressed (C(.gz), C(.bz2), C(.zst)).
      - Columns that some of the files lack are empty in their rows. Columns of which the types disagree are an error.
      - When the dataset is there, files are compared by path, size and time of change. Files that are gone meanwhile
        are no error.
    type: dict
    suboptions:
      train:
        description: What is trained on.
        type: list
        elements: str
        required: true
      val:
        description: What is validated on. Without it, O(val_rows) is required.
        type: list
        elements: str
  hub:
    description:
      - A dataset repository of HuggingFace (V(openai/gsm8k)), of which O(files) are taken. None of its code is run.
      - What is fetched is compared with the hashes that the hub tells, and stays in its cache at C(hf/hub/) under the
        shared root.
    type: str
  revision:
    description:
      - A branch, a tag or a commit of the repository. The commit is kept in the manifest. A branch that moves later
        changes nothing, and nothing is asked of the network when the dataset is there.
    type: str
    default: main
  endpoint:
    description:
      - The address of a mirror, or of a server of one's own. By default what E(HF_ENDPOINT) says on the node, and
        V(https://huggingface.co) otherwise.
      - O(script) has it as its E(HF_ENDPOINT).
    type: str
  token:
    description:
      - For a private or gated repository. It is in no message.
      - O(script) has it as its E(HF_TOKEN), and without it what the node has of that name.
      - While the module runs, the file by which Ansible has brought it to the node has it, for its owner alone.
    type: str
  script:
    description:
      - The name of one of verl's own scripts in C(examples/data_preprocess/) of a snapshot, such as V(gsm8k.py),
        V(math_dataset.py) or V(gsm8k_multiturn_sft.py).
      - It runs with the snapshot's verl, and with C(hf/) under the shared root as E(HF_HOME), where its downloads stay.
      - What it writes as C(test.parquet) or C(validation.parquet) becomes C(val.parquet), and other files are removed.
    type: str
  code_path:
    description:
      - The snapshot in which O(script) is, a code id or an absolute path. Snapshots of a release have no scripts.
    type: str
  arguments:
    description:
      - Further arguments of O(script), such as C(--local_dataset_path). The one for its output is set, by the name that
        the script has for it (C(--local_save_dir), up to verl 0.5 C(--local_dir)).
    type: list
    elements: str
  tiny:
    description: Make 128 and 16 word problems of addition (32 of them for O(workload=sft)), for a smoke test.
    type: bool
    default: false
  columns:
    description:
      - Which columns of the files are what. Without it they are in verl's form already, and rows are taken as they are.
    type: dict
    suboptions:
      prompt:
        description: The prompt, as text or as a list of C({role, content}).
        type: str
      ground_truth:
        description: What the reward function compares with, for O(workload=rl). Numbers become text.
        type: str
      data_source:
        description: By what verl chooses the reward function, when it is not the same in all rows.
        type: str
      ability:
        description: The kind of task, when it is not the same in all rows.
        type: str
      extra:
        description:
          - Further columns to keep under their names, for O(workload=rl) in C(extra_info), beside C(split) and
            C(index), which are always there.
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
      - The same in all rows. verl chooses the reward function by it, so that it has to be a name which verl knows
        (V(openai/gsm8k)), unless the job brings a reward function of its own.
      - Required for O(workload=rl) with O(columns), unless O(columns.data_source) is given.
    type: str
  ability:
    description: The same in all rows. With O(columns) it is empty by default.
    type: str
  system_prompt:
    description: A message of the system, put before each prompt. Prompts that have one of their own are an error.
    type: str
  instruction:
    description:
      - Text for the end of each prompt, such as V(Let's think step by step and output the final answer after "####".).
      - A space is put before it, unless it begins with white space.
    type: str
  ground_truth_pattern:
    description:
      - A regular expression of Python with one group. What the group has in the last match is the ground truth
        (V(#### (.+\))). It is kept as it is, with the commas of a number. Rows without a match are an error.
    type: str
  ground_truth_remove:
    description:
      - Characters that are taken out of the ground truth, such as V(",").
      - verl's reward function for C(openai/gsm8k) takes the commas out of the model's numbers, and compares text.
    type: str
  val_rows:
    description:
      - How many rows of C(train) become C(val), where there are none for it. They are spread evenly over all rows, the
        first among them, and are the same every time.
    type: int
  model:
    description:
      - Whose tokenizer and chat template measure prompts, a staged model or an absolute path.
      - When the dataset is there and was not measured with this and O(max_prompt_length), its rows are checked again,
        once. The dataset does not change by it; its manifest keeps what is found.
    type: str
  max_prompt_length:
    description:
      - How many tokens a prompt may have (C(data.max_prompt_length) of the job), or for O(workload=sft) a conversation
        (C(data.max_length)). Longer ones are a warning. verl leaves them out, or stops at them.
      - Only rows of which the text has more bytes than this are tokenised. Those with images are not measured.
    type: int
seealso:
  - module: argus.verl.code_snapshot
  - module: argus.verl.staged_info
"""

EXAMPLES = r"""
- name: Make GSM8K with verl's own script, from the hub
  argus.verl.rl_dataset:
    name: gsm8k
    script: gsm8k.py
    code_path: verl-0123456789ab

- name: Bring questions and answers of one's own into verl's form
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

- name: Take conversations from a repository, and keep 500 of them for validation
  argus.verl.rl_dataset:
    name: chats
    workload: sft
    hub: team/chats
    revision: v2
    token: "{{ vault_hf_token }}"
    files: {train: [data/train-*.parquet]}
    columns: {messages: conversation}
    val_rows: 500

- name: Make something for a smoke test
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
  description: The directory of the dataset, as this node sees it.
  type: str
  returned: success
  sample: /private/datasets/gsm8k
status:
  description:
    - V(staged) when it was made now, V(exists) when it was there already and fits its manifest, V(repaired) when files
      of it were put back, V(removed) and V(absent) for O(state=absent). In check mode, what it would be.
  type: str
  returned: success
  sample: staged
notes:
  description: What was repaired, a line for each file. When it was made or measured now, the RV(report) as well.
  type: list
  elements: str
  returned: success
  sample: []
rows:
  description: How many rows there are, by split.
  type: dict
  returned: when the dataset is there
  sample: {train: 7473, val: 1319}
report:
  description: What was found when its rows were checked and is no error, a line each with split, rows and values.
  type: list
  elements: str
  returned: when the dataset is there
  sample:
    - "train: has the same prompt as an earlier row: 1 row, counted from 0: 17 (as 3)"
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset import stage as datasets
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset.options import COLUMN_TEXTS, DatasetOptions
from ansible_collections.argus.verl.plugins.module_utils.staging.errors import StagingError, failure
from ansible_collections.argus.verl.plugins.module_utils.staging.manifest import read_manifest
from ansible_collections.argus.verl.plugins.module_utils.staging.options import OPTIONS, StageOptions
from ansible_collections.argus.verl.plugins.module_utils.staging.result import Status, module_result
from ansible_collections.argus.verl.plugins.module_utils.staging.users import users

TEXT = {"type": "str"}
TEXTS = {"type": "list", "elements": "str"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **OPTIONS,
            "name": {"type": "str", "required": True},
            "workload": {"type": "str", "choices": ["rl", "sft"], "default": "rl"},
            "files": {"type": "dict", "options": {"train": {**TEXTS, "required": True}, "val": TEXTS}},
            "hub": TEXT,
            "revision": {"type": "str", "default": "main"},
            "endpoint": TEXT,
            "token": {"type": "str", "no_log": True},
            "script": TEXT,
            "code_path": TEXT,
            "arguments": TEXTS,
            "tiny": {"type": "bool", "default": False},
            "columns": {
                "type": "dict",
                "options": {
                    **dict.fromkeys(("prompt", "ground_truth", "data_source", "ability", "messages", "response"), TEXT),
                    "extra": TEXTS,
                },
            },
            **dict.fromkeys(COLUMN_TEXTS, TEXT),
            "val_rows": {"type": "int"},
            "model": TEXT,
            "max_prompt_length": {"type": "int"},
        },
        required_together=[("model", "max_prompt_length")],
        supports_check_mode=True,
    )
    given = module.params
    root = Path(given["shared_root"])
    try:
        if given["state"] == "absent":
            staged = datasets.remove_dataset(
                root, given["name"], given["workload"], lambda target: users(root, target), check=module.check_mode
            )
        else:
            options = StageOptions.of(given, check=module.check_mode)
            staged = datasets.stage_dataset(root, DatasetOptions.of(given), options)
        manifest = read_manifest(Path(staged.path))
    except ImportError as error:
        module.fail_json(msg=missing_required_lib(error.name or "", reason="to stage datasets: run this inside a node"))
    except (StagingError, OSError) as error:
        module.fail_json(**failure(error))
    returned = module_result(staged, manifest, ["rows", "report"])
    if staged.status is Status.STAGED:
        # The warnings for the rows are shown once, when the dataset is new.
        returned["notes"] += returned.get("report", [])
    module.exit_json(name=staged.name, **returned)


if __name__ == "__main__":
    main()
