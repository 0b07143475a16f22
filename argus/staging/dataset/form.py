# SPDX-License-Identifier: Apache-2.0
"""Converts columns and conversations to verl's schema, a batch at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...checks.dataset import RL, SFT, content_type, is_list, is_text
from ..items import COLUMN_TEXTS, Dataset
from ..manifest import Facts
from ..options import StagingError
from .checks import Checker
from .rows import Array, Batch, ColumnSelection, text_column

# Conversations in the forms of ShareGPT (from, value) and Alpaca (instruction, input, output), as messages of verl.

Messages = list[dict[str, Any]]
SHAREGPT = {"from": "role", "value": "content"}
# Other roles have verl's names.
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
    kind = pyarrow.list_(pyarrow.struct([(SHAREGPT.get(item.name, item.name), item.type) for item in kind.value_type]))
    translated = [
        [{SHAREGPT.get(key, key): value for key, value in (message or {}).items()} for message in conversation]
        for conversation in conversations
    ]
    for message in (message for messages in translated for message in messages):
        message["role"] = SHAREGPT_ROLES.get(str(message.get("role")), message.get("role"))
    return translated, kind


def with_messages(batch: Batch, split: str, rows: Sequence[int], checker: Checker) -> Batch:
    """The rows with a column messages. Other columns stay, and so do rows of an unknown form."""
    import pyarrow

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    name = next((candidate for candidate in ("messages", "conversations") if candidate in columns), None)
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


# Converts the columns of a dataset to verl's schema, a batch at a time.

# The roles that columns can have for each workload.
ROLES_OF_COLUMNS = {
    RL: ("prompt", "ground_truth", "data_source", "ability", "extra"),
    SFT: ("messages", "prompt", "response", "extra"),
}


# Columns that verl's datasets read beside the messages, under these names.
CARRIED = ("tools", "images", "videos", "audios", "enable_thinking")


class Form:
    """How the rows of a dataset are converted to verl's schema; without columns they already have it."""

    def __init__(self, options: Dataset) -> None:
        """Raises StagingError for options that do not fit together."""
        self.options, self.workload, self.columns = options, options.workload, options.columns
        self.pattern: re.Pattern[str] | None = None
        text_options = [name for name in COLUMN_TEXTS if getattr(options, name) is not None]
        if not self.columns.roles:
            if text_options:
                remedy = "Set columns, or omit these options."
                raise StagingError(", ".join(text_options), "apply to columns, but columns is not set.", remedy)
            return
        unknown = [name for name in self.columns.roles if name not in ROLES_OF_COLUMNS[self.workload]]
        if unknown:
            remedy = f"Set only {', '.join(ROLES_OF_COLUMNS[self.workload])}."
            raise StagingError("columns", f"has no {', '.join(unknown)} for {self.workload}.", remedy)
        problem = self._rl_problem() if self.workload == RL else self._sft_problem(text_options)
        if problem:
            raise StagingError("columns", *problem)
        self.pattern = self._regex()

    def _rl_problem(self) -> tuple[str, str] | None:
        columns = self.columns.roles
        missing = [name for name in ("prompt", "ground_truth") if name not in columns]
        if missing:
            return f"has no {', '.join(missing)}.", "Set it to the name of a column."
        for name in ("data_source", "ability"):
            if name in columns and getattr(self.options, name) is not None:
                return f"has {name}, which is also set as a text.", "Omit one of them."
        if "data_source" not in columns and not self.options.data_source:
            return "has no data_source.", "Set data_source: verl selects the reward function by it."
        reserved = sorted({"split", "index"} & set(self.columns.extra))
        if reserved:
            return f"has {', '.join(reserved)} in extra, which are always added.", "Omit them, or rename the columns."
        return None

    def _sft_problem(self, text_options: Sequence[str]) -> tuple[str, str] | None:
        columns = self.columns.roles
        if ("messages" in columns) == bool({"prompt", "response"} & set(columns)):
            return "needs either messages, or prompt and response.", "Set them to the names of columns."
        missing = [name for name in ("prompt", "response") if name not in columns]
        if "messages" not in columns and missing:
            return f"has no {missing[0]}.", "Set it to the name of a column."
        useless = [name for name in text_options if name not in ("system_prompt", "instruction")]
        if "messages" in columns:
            useless = list(text_options)
        if useless:
            return f"does not use {', '.join(useless)} here.", "Omit it."
        if "messages" in self.columns.extra:
            return "has messages in extra, which is built from the other columns.", "Omit it."
        return None

    def _regex(self) -> re.Pattern[str] | None:
        if self.options.ground_truth_pattern is None:
            return None
        remedy = "Give a regular expression with one group: #### (.+)"
        try:
            pattern = re.compile(self.options.ground_truth_pattern)
        except re.error as error:
            raise StagingError("ground_truth_pattern", f"is not a regular expression: {error}.", remedy) from error
        if pattern.groups != 1:
            raise StagingError("ground_truth_pattern", f"has {pattern.groups} groups.", remedy)
        return pattern

    @property
    def identity(self) -> Facts:
        """The options that determine the rows, as JSON."""
        texts = {name: getattr(self.options, name) for name in COLUMN_TEXTS}
        values = {"workload": self.workload, "columns": self.columns.roles or None, **texts}
        return {name: value for name, value in values.items() if value is not None}

    def selection(self) -> ColumnSelection:
        """The columns that are read."""
        named = [[value] if isinstance(value, str) else value for value in self.columns.roles.values()]
        texts = ("prompt", "response", "ground_truth", "data_source", "ability")
        return ColumnSelection(
            columns=list(dict.fromkeys(name for names in named for name in names)),
            optional=CARRIED,
            texts=[name for role in texts if (name := getattr(self.columns, role))],
        )

    def apply(self, batch: Batch, split: str, rows: Sequence[int], first: int, checker: Checker) -> Batch:
        """The rows in verl's schema. Rows that cannot be converted are added to the checker.

        rows: their numbers in the source. first: the index of the first one in its split.
        """
        import pyarrow

        if not self.columns.roles:
            return with_messages(batch, split, rows, checker) if self.workload == SFT else batch
        columns = self.columns
        extra = {name: batch.column(name) for name in columns.extra}
        carried = {name: batch.column(name) for name in CARRIED if name in batch.schema.names}
        if columns.messages:
            messages = pyarrow.array(*turns(batch.column(columns.messages)))
            return sft_batch({"messages": messages, **extra, **carried})
        prompts, kind = self._prompts(batch.column(columns.prompt), split, rows, checker)
        if self.workload == SFT:
            for prompt, answer in zip(prompts, text_column(batch, columns.response).to_pylist(), strict=True):
                prompt.append({"role": "assistant", "content": answer})
            return sft_batch({"messages": pyarrow.array(prompts, kind), **extra, **carried})
        truth = self._ground_truth(batch.column(columns.ground_truth), split, rows, checker)
        # As in the output of verl's own scripts.
        index = pyarrow.array(range(first, first + batch.num_rows), pyarrow.int64())
        info = {"split": pyarrow.repeat(split, batch.num_rows), "index": index} | {
            name: extra[name] for name in extra if name not in carried
        }
        reward = {"style": pyarrow.repeat("rule", batch.num_rows), "ground_truth": truth}
        converted = {
            "data_source": self._text(batch, "data_source"),
            "prompt": pyarrow.array(prompts, kind),
            "ability": self._text(batch, "ability"),
            "reward_model": pyarrow.StructArray.from_arrays(reward.values(), list(reward)),
            "extra_info": pyarrow.StructArray.from_arrays(info.values(), list(info)),
            **carried,
        }
        return pyarrow.RecordBatch.from_pydict(converted)

    def _text(self, batch: Batch, name: str) -> Array:
        """A column, or the same text in every row."""
        import pyarrow

        column = getattr(self.columns, name)
        return (
            text_column(batch, column) if column else pyarrow.repeat(getattr(self.options, name) or "", batch.num_rows)
        )

    def _prompts(self, column: Array, split: str, rows: Sequence[int], checker: Checker) -> tuple[list[Messages], Any]:
        """The messages of each row, and their type."""
        system_prompt, instruction = self.options.system_prompt, self.options.instruction
        if is_text(column.type):
            prompts, kind = [[{"role": "user", "content": value}] for value in column.to_pylist()], text_messages()
        else:
            prompts, kind = turns(column)
        content = content_type(kind)
        if content is None:
            problem = f"is of type {kind}, neither text nor a list of {{role, content}}."
            raise StagingError(f"column {self.columns.prompt}", problem, "Set another column, or change its type.")
        if not is_text(content) and (system_prompt is not None or instruction is not None):
            problem = f"has content of type {content}, to which no text can be added."
            remedy = "Omit system_prompt and instruction, or convert it to text."
            raise StagingError("columns.prompt", problem, remedy)
        for row, prompt in zip(rows, prompts, strict=True):
            if instruction is not None and prompt and (last := prompt[-1]["content"] or "").strip():
                space = "" if instruction[:1].isspace() else " "
                prompt[-1] = {**prompt[-1], "content": f"{last}{space}{instruction}"}
            if system_prompt is not None:
                if prompt and prompt[0]["role"] == "system":
                    checker.add(split, row, "has its own system message besides system_prompt")
                prompt.insert(0, {"role": "system", "content": system_prompt})
        return prompts, kind

    def _ground_truth(self, column: Array, split: str, rows: Sequence[int], checker: Checker) -> Array:
        import pyarrow
        from pyarrow import types

        kind, pattern, removed = column.type, self.pattern, self.options.ground_truth_remove or ""
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            # verl's reward functions compare texts: the number 42 does not equal "42".
            column = column.cast(pyarrow.string())
        if not is_text(column.type):
            used = [name for name in ("ground_truth_pattern", "ground_truth_remove") if getattr(self.options, name)]
            if used:
                problem = f"is of type {kind}, but {used[0]} applies to text."
                raise StagingError(f"column {self.columns.ground_truth}", problem, f"Omit {used[0]}.")
            return column
        truths = []
        for row, text in zip(rows, column.to_pylist(), strict=True):
            truth = text
            if pattern and text is not None:
                matches = pattern.findall(text)
                if not matches:
                    checker.add(split, row, "has a ground truth that ground_truth_pattern does not match", text)
                # A result comes last, after its derivation.
                truth = matches[-1] if matches else text
            for character in removed if truth else "":
                truth = truth.replace(character, "")
            truths.append(truth)
        return pyarrow.array(truths, pyarrow.string())
