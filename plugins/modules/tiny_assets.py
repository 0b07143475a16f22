#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: tiny models and datasets, made on the spot, with which real jobs run in a minute."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tiny_assets
short_description: Make tiny models and datasets for training jobs that take a minute
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Makes what a smoke test of the cluster trains on, without a download. A random Qwen2 model of two layers with its
    tokenizer and chat template, and word problems of addition in the form of GSM8K.
  - Models lie at C(common/models/<name>/) and datasets at C(datasets/<name>/) under the shared root, each with a
    C(manifest.json) that has size and SHA-256 of every file.
  - Each is made once. It appears whole or not at all, and one that exists already is left alone.
  - Runs inside a node, whose image has the libraries. They are imported only when something is missing.
requirements:
  - python >= 3.11
  - pyarrow (for datasets)
  - torch, transformers and tokenizers (for models)
extends_documentation_fragment:
  - argus.verl.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  shared_root:
    description: The shared root, as this node sees it.
    type: path
    default: /private
  models:
    description:
      - Names of the models to make.
      - A name matches C([A-Za-z0-9][A-Za-z0-9._-]{0,62}).
    type: list
    elements: str
    default: []
  rl_datasets:
    description:
      - Names of the datasets to make for PPO and GRPO, with 128 problems in C(train.parquet) and 16 in C(val.parquet).
      - Their columns are C(data_source) (always V(openai/gsm8k)), C(prompt), C(ability), C(reward_model) and
        C(extra_info).
      - A name matches C([a-z0-9][a-z0-9._-]{0,62}).
    type: list
    elements: str
    default: []
  sft_datasets:
    description:
      - Names of the datasets to make for SFT, with 128 problems in C(train.parquet) and 32 in C(val.parquet).
      - Their column is C(messages).
      - A name matches C([a-z0-9][a-z0-9._-]{0,62}).
    type: list
    elements: str
    default: []
notes:
  - The content depends on nothing but the versions of the libraries. Two runs with the same ones make the same files.
  - The model is random. It shows that a job runs, not that a recipe works.
seealso:
  - module: argus.verl.code_snapshot
"""

EXAMPLES = r"""
- name: Make what the smoke tests train on
  argus.verl.tiny_assets:
    models: [tiny]
    rl_datasets: [gsm8k-tiny]
    sft_datasets: [gsm8k-tiny-sft]
"""

RETURN = r"""
results:
  description: What was asked for, in the order of the options, and what became of it.
  type: list
  elements: dict
  returned: success
  contains:
    kind:
      description: One of V(model), V(rl_dataset) and V(sft_dataset).
      type: str
    name:
      description: The name that was given.
      type: str
    path:
      description: Its directory, as this node sees it.
      type: str
    status:
      description: V(staged) when it was made now, or would be in check mode; V(exists) when it was there already.
      type: str
  sample:
    - kind: model
      name: tiny
      path: /private/common/models/tiny
      status: staged
"""

import importlib
import itertools
import random
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.argus.verl.plugins.module_utils.staging import (
    EXISTS,
    NAME,
    NAME_WITH_CAPITALS,
    STAGED,
    Staged,
    StagingError,
    check_name,
    check_shared_root,
    difference,
    manifest_of,
    stage_directory,
)

# verl chooses its built-in reward function by this name.
DATA_SOURCE = "openai/gsm8k"
RL_ROWS = {"train": 128, "val": 16}
SFT_ROWS = {"train": 128, "val": 32}
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Problem:
    """A word problem as GSM8K writes it: the last line of the answer is ``#### <number>``."""

    question: str
    answer: str
    result: str


def problems(count: int) -> list[Problem]:
    """The first problems of an endless list that is the same at every call."""
    chance = random.Random(0)  # noqa: S311 - repeatable is what it has to be
    made = []
    for _dummy in range(count):
        has, gets = chance.randint(1, 20), chance.randint(1, 20)
        who, what = chance.choice(("Ann", "Bob", "Carl", "Dina")), chance.choice(("apples", "coins", "books"))
        made.append(
            Problem(
                f"{who} has {has} {what} and gets {gets} more. How many {what} does {who} have now?",
                f"{has} + {gets} = {has + gets}. The answer is\n#### {has + gets}",
                str(has + gets),
            )
        )
    return made


def rl_rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of each split, in the columns that verl's RL trainers read."""
    return {
        split: [
            {
                "data_source": DATA_SOURCE,
                "prompt": [{"role": "user", "content": problem.question}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": problem.result},
                "extra_info": {
                    "split": split,
                    "index": index,
                    "question": problem.question,
                    "answer": problem.answer,
                },
            }
            for index, problem in enumerate(part)
        ]
        for split, part in _split(RL_ROWS).items()
    }


def sft_rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of each split, in the column that verl's SFT trainer reads."""
    return {
        split: [
            {
                "messages": [
                    {"role": "user", "content": problem.question},
                    {"role": "assistant", "content": problem.answer},
                ]
            }
            for problem in part
        ]
        for split, part in _split(SFT_ROWS).items()
    }


def _split(rows: Mapping[str, int]) -> dict[str, list[Problem]]:
    """Different problems for each split."""
    rest = iter(problems(sum(rows.values())))
    return {split: list(itertools.islice(rest, count)) for split, count in rows.items()}


def build_dataset(directory: Path, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    import pyarrow
    from pyarrow import parquet

    for split, part in rows.items():
        parquet.write_table(pyarrow.Table.from_pylist(part), directory / f"{split}.parquet")


def build_model(directory: Path) -> None:
    """Two layers, 64 wide; a tokenizer of at most 512 tokens, learned from the problems."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    endoftext, start, end = SPECIAL_TOKENS
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    text = [part for problem in problems(sum(SFT_ROWS.values())) for part in (problem.question, problem.answer)]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=list(SPECIAL_TOKENS),
        # Every byte is a token, so that no text is unknown.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pairs.train_from_iterator([*text, "system user assistant"], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pairs, eos_token=end, pad_token=endoftext)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(directory)

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.convert_tokens_to_ids(start),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)


@dataclass(frozen=True)
class Kind:
    """One kind of asset: where it lies, what it needs, and how it is made."""

    name: str
    option: str
    parent: str
    allowed: re.Pattern[str]
    libraries: tuple[str, ...]
    build: Callable[[Path], None]


KINDS = (
    Kind("model", "models", "common/models", NAME_WITH_CAPITALS, ("torch", "transformers", "tokenizers"), build_model),
    Kind("rl_dataset", "rl_datasets", "datasets", NAME, ("pyarrow",), lambda path: build_dataset(path, rl_rows())),
    Kind("sft_dataset", "sft_datasets", "datasets", NAME, ("pyarrow",), lambda path: build_dataset(path, sft_rows())),
)


@dataclass(frozen=True)
class Asset:
    """One thing that was asked for."""

    kind: Kind
    name: str
    target: Path

    def exists(self) -> bool:
        manifest = manifest_of(self.target)
        if manifest is not None and manifest.get("kind") != self.kind.name:
            raise StagingError(
                self.target, f"is of kind {manifest.get('kind')}, not {self.kind.name}.", "Choose another name."
            )
        return manifest is not None

    def stage(self) -> Staged:
        def build(directory: Path) -> dict[str, str]:
            self.kind.build(directory)
            return {"kind": self.kind.name, "name": self.name, "made_by": "argus.verl.tiny_assets"}

        return self.result(stage_directory(self.target, build))

    def result(self, status: str) -> Staged:
        return Staged(self.kind.name, self.name, str(self.target), status)


def wanted(shared_root: Path, options: Mapping[str, list[str]]) -> list[Asset]:
    """What the options ask for, each once, with all names checked."""
    assets: dict[Path, Asset] = {}
    for kind in KINDS:
        for name in options[kind.option]:
            target = shared_root / kind.parent / check_name(kind.option, name, kind.allowed)
            first = assets.setdefault(target, Asset(kind, name, target))
            if first.kind != kind:
                raise StagingError(
                    target, f"is asked for as {first.kind.name} and as {kind.name}.", "Give them different names."
                )
    return list(assets.values())


def let_torch_see_a_function() -> None:
    """torch cannot be imported where ``sys.intern`` is an object; ansible-core 2.19 puts one there in every module."""
    replaced = sys.intern

    # torch compares the signature too.
    def intern(string: str, /) -> str:
        return replaced(string)

    sys.intern = intern


def missing_library(assets: list[Asset]) -> tuple[str, str] | None:
    """The first library that is missing for making these, and the traceback of its import."""
    for library in dict.fromkeys(library for asset in assets for library in asset.kind.libraries):
        try:
            importlib.import_module(library)
        except ImportError:
            return library, traceback.format_exc()
    return None


def main() -> None:
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "shared_root": {"type": "path", "default": "/private"},
            "models": names,
            "rl_datasets": names,
            "sft_datasets": names,
        },
        supports_check_mode=True,
    )
    try:
        assets = wanted(check_shared_root(Path(module.params["shared_root"])), module.params)
        missing = [asset for asset in assets if not asset.exists()]
        let_torch_see_a_function()
        lacking = missing_library(missing)
        if lacking is not None:
            module.fail_json(
                msg=missing_required_lib(lacking[0], reason="to make tiny assets: run this module inside a node"),
                exception=lacking[1],
            )
        results = [
            asset.result(STAGED if asset in missing else EXISTS) if module.check_mode else asset.stage()
            for asset in assets
        ]
    except (StagingError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=any(result.status == STAGED for result in results),
        results=[result.as_dict() for result in results],
        diff=difference(results),
    )


if __name__ == "__main__":
    main()
