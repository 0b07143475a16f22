# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verl's schema of a dataset: its columns and their types."""

from __future__ import annotations

from typing import Any

RL, SFT = "rl", "sft"
SPLITS = ("train", "val")
# The column of messages that verl's trainers read.
MESSAGES = {RL: "prompt", SFT: "messages"}
# pyarrow's own types, which are not available to the type checker.
Array = Any
Batch = Any
Schema = Any


def schema_problem(schema: Schema, workload: str) -> tuple[str, str] | None:
    """What is wrong with the columns, and what to do; None if verl can read them."""
    names, key = schema.names, MESSAGES[workload]
    if key not in names:
        if workload == SFT and {"prompt", "reward_model"} <= set(names):
            return "is a dataset for ppo and grpo (prompt, reward_model), not for sft.", "Set workload to rl."
        if workload == RL and "messages" in names:
            return "is a dataset for sft (messages), not for ppo and grpo.", "Set workload to sft."
        return f"has no column {key}; it has: {', '.join(names)}.", "Set columns to the names of its columns."
    kind = schema.field(key).type
    content = content_type(kind)
    if content is None:
        return (
            f"has a column {key} of type {kind}, where verl reads a list of {{role, content}}.",
            f"Set columns to {{{key}: {key}}} if it is text, or rename its fields.",
        )
    if not (is_text(content) or is_list(content)):
        return f"has messages with content of type {content}, where verl reads text.", "Write it as text."
    return reward_problem(schema) if workload == RL else None


def reward_problem(schema: Schema) -> tuple[str, str] | None:
    """What is wrong with the columns that the reward functions read."""
    from pyarrow import types

    for name in ("data_source", "reward_model"):
        if name not in schema.names:
            what = f"has no column {name}, which verl's reward managers read; it has: {', '.join(schema.names)}."
            return what, "Convert it to verl's schema, or set columns to the names of its columns."
    if not is_text(schema.field("data_source").type):
        return f"has a column data_source of type {schema.field('data_source').type}.", "Write it as text."
    kind = schema.field("reward_model").type
    if not (types.is_struct(kind) and kind.get_field_index("ground_truth") >= 0):
        return f"has a column reward_model of type {kind}.", "Give it the form {style: rule, ground_truth: …}."
    if "extra_info" in schema.names:
        kind = schema.field("extra_info").type
        # utils/dataset/rl_dataset.py: __getitem__ calls its get().
        if not (types.is_struct(kind) or types.is_null(kind)):
            return f"has a column extra_info of type {kind}.", "Make it a mapping, or remove it."
    return None


def content_type(kind: Any) -> Any:
    """The type of the content of messages; None if the type is not a list of messages."""
    from pyarrow import types

    if not is_list(kind) or not types.is_struct(kind.value_type):
        return None
    fields = {kind.value_type.field(index).name: index for index in range(kind.value_type.num_fields)}
    return kind.value_type.field(fields["content"]).type if {"role", "content"} <= set(fields) else None


def is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Whether the type is text, or has null as its only value."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind)
    )
