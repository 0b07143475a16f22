# SPDX-License-Identifier: Apache-2.0
"""Converts conversations in the forms of ShareGPT and Alpaca to messages of verl, for SFT.

ShareGPT has a list of {from, value} in each row, Alpaca has columns instruction, input and output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...checks.dataset import is_list
from .checks import RowChecker
from .rows import Array, Batch

# The messages of one row.
Messages = list[dict[str, Any]]
# The keys of a ShareGPT message, and its roles that verl names otherwise.
SHAREGPT_KEYS = {"from": "role", "value": "content"}
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "observation": "tool"}
ALPACA_REQUIRED, ALPACA_OPTIONAL = ("instruction", "output"), ("input", "history")


def text_messages_type() -> Any:
    """The Arrow type of messages whose content is text."""
    import pyarrow

    return pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())]))


def is_sharegpt(arrow_type: Any) -> bool:
    from pyarrow import types

    has_fields = is_list(arrow_type) and types.is_struct(arrow_type.value_type)
    return has_fields and set(SHAREGPT_KEYS) <= {field.name for field in arrow_type.value_type}


def messages_and_type(column: Array) -> tuple[list[Messages], Any]:
    """The messages of each row and their Arrow type; those of ShareGPT get verl's keys and roles."""
    import pyarrow

    arrow_type, conversations = column.type, column.to_pylist()
    if is_list(arrow_type):
        conversations = [value or [] for value in conversations]
    if not is_sharegpt(arrow_type):
        return conversations, arrow_type
    fields = [(SHAREGPT_KEYS.get(field.name, field.name), field.type) for field in arrow_type.value_type]
    translated = [
        [{SHAREGPT_KEYS.get(key, key): value for key, value in (message or {}).items()} for message in conversation]
        for conversation in conversations
    ]
    for message in (message for messages in translated for message in messages):
        message["role"] = SHAREGPT_ROLES.get(str(message.get("role")), message.get("role"))
    return translated, pyarrow.list_(pyarrow.struct(fields))


def with_messages_column(batch: Batch, split: str, row_numbers: Sequence[int], checker: RowChecker) -> Batch:
    """The rows with a column messages instead of the columns of ShareGPT or Alpaca; unchanged if they have neither.

    A column system becomes the first message. row_numbers: by which the checker names the rows.
    """
    import pyarrow

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    name = next((candidate for candidate in ("messages", "conversations") if candidate in columns), None)
    if name == "messages" and not is_sharegpt(columns[name].type):
        return sft_batch(columns)
    if name:
        conversations, arrow_type = messages_and_type(columns.pop(name))
    elif set(columns) >= {*ALPACA_REQUIRED}:
        names = [name for name in (*ALPACA_REQUIRED, *ALPACA_OPTIONAL) if columns.pop(name, None) is not None]
        conversations = [alpaca_messages(row) for row in batch.select(names).to_pylist()]
        arrow_type = text_messages_type()
    else:
        return batch
    if columns.pop("system", None) is not None:
        for row, messages, text in zip(row_numbers, conversations, batch.column("system").to_pylist(), strict=True):
            if text and messages and messages[0].get("role") == "system":
                checker.add(split, row, "has its own system message besides the column system")
            elif text:
                messages.insert(0, {"role": "system", "content": text})
    return sft_batch({"messages": pyarrow.array(conversations, arrow_type), **columns})


def alpaca_messages(row: Mapping[str, Any]) -> Messages:
    """The messages of a row, beginning with those of its history, a list of [instruction, output]."""
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
