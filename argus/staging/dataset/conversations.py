# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversations in the forms of ShareGPT (from, value) and Alpaca (instruction, input, output), as messages of verl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...checks.rows import is_list
from .checks import Checker
from .rows import Array, Batch

Messages = list[dict[str, Any]]
SHAREGPT = {"from": "role", "value": "content"}
# Others are those of verl.
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "observation": "tool"}
ALPACA = {"instruction", "output"}


def text_messages() -> Any:
    import pyarrow

    return pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())]))


def is_sharegpt(kind: Any) -> bool:
    from pyarrow import types

    has_fields = is_list(kind) and types.is_struct(kind.value_type)
    return has_fields and set(SHAREGPT) <= {field.name for field in kind.value_type}


def turns(column: Array) -> tuple[list[Messages], Any]:
    """The messages of each row, and their type; those of ShareGPT with verl's keys and roles."""
    import pyarrow

    kind, conversations = column.type, column.to_pylist()
    if is_list(kind):
        conversations = [value or [] for value in conversations]
    if not is_sharegpt(kind):
        return conversations, kind
    kind = pyarrow.list_(pyarrow.struct([(SHAREGPT.get(each.name, each.name), each.type) for each in kind.value_type]))
    translated = [
        [{SHAREGPT.get(key, key): value for key, value in (message or {}).items()} for message in conversation]
        for conversation in conversations
    ]
    for message in (message for messages in translated for message in messages):
        message["role"] = SHAREGPT_ROLES.get(str(message.get("role")), message.get("role"))
    return translated, kind


def with_messages(batch: Batch, split: str, rows: Sequence[int], checker: Checker) -> Batch:
    """The rows with the column messages. Columns of which it is not made stay, and so do rows of an unknown form."""
    import pyarrow

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    name = next((each for each in ("messages", "conversations") if each in columns), None)
    if name == "messages" and not is_sharegpt(columns[name].type):
        return sft_batch(columns)
    if name:
        conversations, kind = turns(columns.pop(name))
    elif {"instruction", "output"} <= set(columns):
        made_of = [
            name for name in ("instruction", "input", "output", "history") if columns.pop(name, None) is not None
        ]
        conversations, kind = [alpaca(row) for row in batch.select(made_of).to_pylist()], text_messages()
    else:
        return batch
    if columns.pop("system", None) is not None:
        for row, messages, text in zip(rows, conversations, batch.column("system").to_pylist(), strict=True):
            if text and messages and messages[0].get("role") == "system":
                checker.add(split, row, "has its own system message besides the column system")
            elif text:
                messages.insert(0, {"role": "system", "content": text})
    return sft_batch({"messages": pyarrow.array(conversations, kind), **columns})


def alpaca(row: Mapping[str, Any]) -> Messages:
    """The messages of a row: those of history first."""
    request = "\n".join(filter(None, (row["instruction"], row.get("input"))))
    pairs = [*(row.get("history") or ()), (request, row["output"])]
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for pair in pairs for role, text in zip(roles, pair, strict=False)]


def sft_batch(columns: Mapping[str, Array]) -> Batch:
    """A batch in which media are never null: utils/dataset/multiturn_sft_dataset.py takes their number in each row."""
    import pyarrow

    columns = dict(columns)
    for name in ("images", "videos"):
        if name in columns and is_list(columns[name].type) and columns[name].null_count:
            column = columns[name]
            columns[name] = pyarrow.array([value or [] for value in column.to_pylist()], column.type)
    return pyarrow.RecordBatch.from_pydict(columns)
