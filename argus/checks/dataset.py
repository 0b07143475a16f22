# SPDX-License-Identifier: Apache-2.0
"""What verl requires of the columns and messages of a dataset.

Staging checks all rows with these functions, the gate only the first ones. A problem is a text that follows the name of
a file, row or split; its remedy is a separate text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING

# The kinds of datasets: RL stands for ppo, grpo and eval.
RL, SFT = "rl", "sft"
SPLITS = ("train", "val")
# The column of messages that verl's trainers read by default.
MESSAGES = {RL: "prompt", SFT: "messages"}
# The roles that chat templates know. They render other roles as plain text.
ROLES = ("system", "developer", "user", "assistant", "tool")


def messages_column_problem(schema: Any, workload: str, key: str) -> tuple[str, str] | None:
    """The problem with the column of messages, and its remedy; None if verl can read it. workload: RL or SFT."""
    names = schema.names
    if key not in names:
        other = "choose another dataset, or another workload"
        if workload == SFT and {"prompt", "reward_model"} <= set(names):
            return f"is a dataset for ppo and grpo (prompt, reward_model), not for sft: it has no column {key}", other
        if workload == RL and "messages" in names:
            return f"is a dataset for sft (messages), not for ppo and grpo: it has no column {key}", other
        return (
            f"has no column {key}; it has: {', '.join(names)}",
            "set columns in staging_datasets to the names of its columns",
        )
    kind = schema.field(key).type
    content = content_type(kind)
    if content is None:
        problem = f"has a column {key} of type {kind}, where verl reads a list of {{role, content}}"
        text = f"set columns to {{{key}: {key}}} in staging_datasets if it is text, or " if workload == RL else ""
        return problem, f"{text}rename its fields"
    if not (is_text(content) or is_list(content)):
        return f"has messages with content of type {content}, where verl reads text", "write it as text"
    return None


def reward_problems(schema: Any, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The problems with the columns that the reward is computed from, and their remedies."""
    from pyarrow import types

    for name in columns:
        if name not in schema.names:
            problem = f"has no column {name}, which verl's reward managers read; it has: {', '.join(schema.names)}"
            yield problem, "convert it to verl's schema, or set columns in staging_datasets to the names of its columns"
    if "reward_model" in schema.names:
        kind = schema.field("reward_model").type
        if not (types.is_struct(kind) and kind.get_field_index("ground_truth") >= 0):
            yield f"has a column reward_model of type {kind}", "give it the form {style: rule, ground_truth: …}"


def extra_info_problem(schema: Any) -> tuple[str, str] | None:
    """The problem with the column extra_info, and its remedy; None if verl can read it."""
    from pyarrow import types

    kind = schema.field("extra_info").type if "extra_info" in schema.names else None
    # utils/dataset/rl_dataset.py: __getitem__ calls its get().
    if kind is None or types.is_struct(kind) or types.is_null(kind):
        return None
    return f"has a column extra_info of type {kind}, where verl reads a mapping", "make it a mapping, or remove it"


def message_problems(
    workload: str, messages: Sequence[Mapping[str, Any] | None] | None
) -> Iterator[tuple[str, str, str]]:
    """The problems of a conversation, each as severity, text and the role that it is about ("" for none)."""
    conversation = [message or {} for message in messages or ()]
    if not conversation:
        yield ERROR, "has no messages", ""
    for message in conversation:
        role = message.get("role")
        if not role or not role.strip():
            yield ERROR, "has a message without a role", ""
        elif role not in ROLES:
            yield WARNING, f"has a role that is none of {', '.join(ROLES)}", role
        elif role in ("user", "assistant") and is_empty(message):
            yield ERROR, "has an empty user or assistant message", role
        elif role in ("system", "developer") and is_empty(message):
            yield WARNING, "has an empty system or developer message", role
    # utils/dataset/multiturn_sft_dataset.py: _process_single_message masks all other roles.
    answers = [message.get("role") == "assistant" and not is_empty(message) for message in conversation]
    if workload == SFT and conversation:
        last = str(conversation[-1].get("role"))
        if not any(answers):
            yield ERROR, "has no assistant message with content, so there is nothing to learn", last
        elif last != "assistant":
            yield WARNING, "has messages after the last assistant message, which are not learned", last


def is_empty(message: Mapping[str, Any]) -> bool:
    """Whether a message has neither content nor a tool call."""
    content = message.get("content")
    return not (content.strip() if isinstance(content, str) else content) and not message.get("tool_calls")


def content_type(kind: Any) -> Any:
    """The type of `content` in a column of this type; None if the column is not a list of {role, content}."""
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

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view, types.is_null))


def open_parquet(path: Path) -> Any:
    """Open a file of Parquet to read it in pieces: a column chunk may hold a gigabyte of images."""
    from pyarrow import parquet

    # pre_buffer would load complete row groups, and keep them until the last one is read (seen with pyarrow 26.0).
    return parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
