# SPDX-License-Identifier: Apache-2.0
"""Generates a tiny random model and tiny datasets, with which real jobs run in a minute.

Their content depends only on the versions of the libraries: the same versions generate the same files.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# verl chooses its built-in reward function by this name.
DATA_SOURCE = "openai/gsm8k"
RL_ROW_COUNTS = {"train": 128, "val": 16}
SFT_ROW_COUNTS = {"train": 128, "val": 32}
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class WordProblem:
    """A word problem as in GSM8K: the last line of the answer is ``#### <number>``."""

    question: str
    answer: str
    result: str


def word_problems(count: int) -> list[WordProblem]:
    """So many problems; they are the same at every call, and more begin with the same ones."""
    chance = random.Random(0)  # noqa: S311 - it must be repeatable
    generated = []
    for _dummy in range(count):
        has, gets = chance.randint(1, 20), chance.randint(1, 20)
        who, item = chance.choice(("Ann", "Bob", "Carl", "Dina")), chance.choice(("apples", "coins", "books"))
        generated.append(
            WordProblem(
                f"{who} has {has} {item} and gets {gets} more. How many {item} does {who} have now?",
                f"{has} + {gets} = {has + gets}. The answer is\n#### {has + gets}",
                str(has + gets),
            )
        )
    return generated


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
        for split, part in _problems_by_split(RL_ROW_COUNTS).items()
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
        for split, part in _problems_by_split(SFT_ROW_COUNTS).items()
    }


def _problems_by_split(row_counts: Mapping[str, int]) -> dict[str, list[WordProblem]]:
    """Different problems for each split."""
    rest = iter(word_problems(sum(row_counts.values())))
    return {split: list(itertools.islice(rest, count)) for split, count in row_counts.items()}


def build_model(directory: Path) -> None:
    """Writes a model of two layers of width 64, and a tokenizer with at most 512 tokens, trained on the problems."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    endoftext, start, end = SPECIAL_TOKENS
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    problems = word_problems(sum(SFT_ROW_COUNTS.values()))
    text = [part for problem in problems for part in (problem.question, problem.answer)]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=list(SPECIAL_TOKENS),
        # Every byte is a token, so no text is unknown.
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
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.convert_tokens_to_ids(start),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    # With this, two of three responses of 32 tokens end by themselves; with random weights alone, one of 16.
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 0.1
        model.lm_head.weight[tokenizer.eos_token_id, 0] = 0.8
    model.save_pretrained(directory)
    # safetensors creates files that only their owner can read.
    for file in directory.iterdir():
        file.chmod(0o644)
