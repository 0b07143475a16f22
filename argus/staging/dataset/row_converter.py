# SPDX-License-Identifier: Apache-2.0
"""Converts the rows of a dataset to verl's schema, a batch at a time, as the dataset's options say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...checks.dataset import RL, SFT, content_type, is_text
from ..items import COLUMN_TEXTS, Dataset
from ..manifest import Facts
from ..options import StagingError
from .checks import RowChecker
from .conversations import Messages, messages_and_type, sft_batch, text_messages_type, with_messages_column
from .rows import Array, Batch, ColumnSelection, text_column

# The keys of the option `columns` that apply to each workload.
COLUMN_KEYS = {
    RL: ("prompt", "ground_truth", "data_source", "ability", "extra"),
    SFT: ("messages", "prompt", "response", "extra"),
}
# Columns that verl's datasets read beside the messages, under these names. They are kept as they are.
PASSED_THROUGH = ("tools", "images", "videos", "audios", "enable_thinking")


class RowConverter:
    """Builds rows as the option `columns` says. Without it, keeps RL rows, and adds a column messages to SFT rows."""

    def __init__(self, dataset: Dataset) -> None:
        """Raises StagingError for options that do not fit together."""
        self.dataset, self.workload, self.columns = dataset, dataset.workload, dataset.columns
        self.pattern: re.Pattern[str] | None = None
        text_options = [name for name in COLUMN_TEXTS if getattr(dataset, name) is not None]
        if not self.columns.by_key:
            if text_options:
                remedy = "Set columns, or omit these options."
                raise StagingError(", ".join(text_options), "apply to columns, but columns is not set.", remedy)
            return
        unknown = [name for name in self.columns.by_key if name not in COLUMN_KEYS[self.workload]]
        if unknown:
            remedy = f"Set only {', '.join(COLUMN_KEYS[self.workload])}."
            raise StagingError("columns", f"has no {', '.join(unknown)} for {self.workload}.", remedy)
        problem = self._rl_problem() if self.workload == RL else self._sft_problem(text_options)
        if problem:
            raise StagingError("columns", *problem)
        self.pattern = self._compiled_pattern()

    def _rl_problem(self) -> tuple[str, str] | None:
        """What is wrong with the option `columns` for RL, and the remedy; None if it is right."""
        columns = self.columns.by_key
        missing = [name for name in ("prompt", "ground_truth") if name not in columns]
        if missing:
            return f"has no {', '.join(missing)}.", "Set it to the name of a column."
        for name in ("data_source", "ability"):
            if name in columns and getattr(self.dataset, name) is not None:
                return f"has {name}, which is also set as a text.", "Omit one of them."
        if "data_source" not in columns and not self.dataset.data_source:
            return "has no data_source.", "Set data_source: verl selects the reward function by it."
        reserved = sorted({"split", "index"} & set(self.columns.extra))
        if reserved:
            return f"has {', '.join(reserved)} in extra, which are always added.", "Omit them, or rename the columns."
        return None

    def _sft_problem(self, text_options: Sequence[str]) -> tuple[str, str] | None:
        """Like _rl_problem, for SFT. text_options: the names of COLUMN_TEXTS that are set."""
        columns = self.columns.by_key
        if ("messages" in columns) == bool({"prompt", "response"} & set(columns)):
            return "needs either messages, or prompt and response.", "Set them to the names of columns."
        missing = [name for name in ("prompt", "response") if name not in columns]
        if "messages" not in columns and missing:
            return f"has no {missing[0]}.", "Set it to the name of a column."
        unused = [name for name in text_options if name not in ("system_prompt", "instruction")]
        if "messages" in columns:
            unused = list(text_options)
        if unused:
            return f"does not use {', '.join(unused)} here.", "Omit it."
        if "messages" in self.columns.extra:
            return "has messages in extra, which is built from the other columns.", "Omit it."
        return None

    def _compiled_pattern(self) -> re.Pattern[str] | None:
        if self.dataset.ground_truth_pattern is None:
            return None
        remedy = "Give a regular expression with one group: #### (.+)"
        try:
            pattern = re.compile(self.dataset.ground_truth_pattern)
        except re.error as error:
            raise StagingError("ground_truth_pattern", f"is not a regular expression: {error}.", remedy) from error
        if pattern.groups != 1:
            raise StagingError("ground_truth_pattern", f"has {pattern.groups} groups.", remedy)
        return pattern

    @property
    def identity(self) -> Facts:
        """The options that determine the rows, as JSON."""
        text_options = {name: getattr(self.dataset, name) for name in COLUMN_TEXTS}
        values = {"workload": self.workload, "columns": self.columns.by_key or None, **text_options}
        return {name: value for name, value in values.items() if value is not None}

    def selection(self) -> ColumnSelection:
        """The columns to read from the files; all if the option `columns` is not set."""
        named = [[value] if isinstance(value, str) else value for value in self.columns.by_key.values()]
        text_keys = ("prompt", "response", "ground_truth", "data_source", "ability")
        return ColumnSelection(
            columns=list(dict.fromkeys(name for names in named for name in names)),
            optional=PASSED_THROUGH,
            texts=[name for key in text_keys if (name := getattr(self.columns, key))],
        )

    def convert(self, batch: Batch, split: str, row_numbers: Sequence[int], start: int, checker: RowChecker) -> Batch:
        """The rows in verl's schema. Rows that cannot be converted are added to the checker.

        row_numbers: the rows' numbers in their source, for messages. start: the first row's index in the split.
        """
        import pyarrow

        if not self.columns.by_key:
            return with_messages_column(batch, split, row_numbers, checker) if self.workload == SFT else batch
        columns = self.columns
        extra = {name: batch.column(name) for name in columns.extra}
        passed = {name: batch.column(name) for name in PASSED_THROUGH if name in batch.schema.names}
        if columns.messages:
            messages = pyarrow.array(*messages_and_type(batch.column(columns.messages)))
            return sft_batch({"messages": messages, **extra, **passed})
        prompts, arrow_type = self._prompts(batch.column(columns.prompt), split, row_numbers, checker)
        if self.workload == SFT:
            for prompt, answer in zip(prompts, text_column(batch, columns.response).to_pylist(), strict=True):
                prompt.append({"role": "assistant", "content": answer})
            return sft_batch({"messages": pyarrow.array(prompts, arrow_type), **extra, **passed})
        truth = self._ground_truth(batch.column(columns.ground_truth), split, row_numbers, checker)
        # As in the output of verl's own scripts.
        index = pyarrow.array(range(start, start + batch.num_rows), pyarrow.int64())
        # Passed columns stay columns, so extra_info does not repeat them.
        info = {"split": pyarrow.repeat(split, batch.num_rows), "index": index} | {
            name: extra[name] for name in extra if name not in passed
        }
        reward = {"style": pyarrow.repeat("rule", batch.num_rows), "ground_truth": truth}
        converted = {
            "data_source": self._text(batch, "data_source"),
            "prompt": pyarrow.array(prompts, arrow_type),
            "ability": self._text(batch, "ability"),
            "reward_model": pyarrow.StructArray.from_arrays(reward.values(), list(reward)),
            "extra_info": pyarrow.StructArray.from_arrays(info.values(), list(info)),
            **passed,
        }
        return pyarrow.RecordBatch.from_pydict(converted)

    def _text(self, batch: Batch, name: str) -> Array:
        """The column that the option `columns` names, or the dataset's own option as the text of every row."""
        import pyarrow

        if column := getattr(self.columns, name):
            return text_column(batch, column)
        return pyarrow.repeat(getattr(self.dataset, name) or "", batch.num_rows)

    def _prompts(
        self, column: Array, split: str, row_numbers: Sequence[int], checker: RowChecker
    ) -> tuple[list[Messages], Any]:
        """The messages of each row, and their Arrow type."""
        system_prompt, instruction = self.dataset.system_prompt, self.dataset.instruction
        if is_text(column.type):
            prompts = [[{"role": "user", "content": value}] for value in column.to_pylist()]
            arrow_type = text_messages_type()
        else:
            prompts, arrow_type = messages_and_type(column)
        content = content_type(arrow_type)
        if content is None:
            problem = f"is of type {arrow_type}, neither text nor a list of {{role, content}}."
            raise StagingError(f"column {self.columns.prompt}", problem, "Set another column, or change its type.")
        if not is_text(content) and (system_prompt is not None or instruction is not None):
            problem = f"has content of type {content}, to which no text can be added."
            remedy = "Omit system_prompt and instruction, or convert it to text."
            raise StagingError(f"column {self.columns.prompt}", problem, remedy)
        for row, prompt in zip(row_numbers, prompts, strict=True):
            if instruction is not None and prompt and (last := prompt[-1]["content"] or "").strip():
                space = "" if instruction[:1].isspace() else " "
                prompt[-1] = {**prompt[-1], "content": f"{last}{space}{instruction}"}
            if system_prompt is not None:
                if prompt and prompt[0]["role"] == "system":
                    checker.add(split, row, "has its own system message besides system_prompt")
                prompt.insert(0, {"role": "system", "content": system_prompt})
        return prompts, arrow_type

    def _ground_truth(self, column: Array, split: str, row_numbers: Sequence[int], checker: RowChecker) -> Array:
        """The ground truth of each row as text, or as it is if its type is another one."""
        import pyarrow
        from pyarrow import types

        arrow_type, pattern, removed_characters = column.type, self.pattern, self.dataset.ground_truth_remove or ""
        if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_boolean(arrow_type):
            # verl's reward functions compare texts: the number 42 is not equal to "42".
            column = column.cast(pyarrow.string())
        if not is_text(column.type):
            used = [name for name in ("ground_truth_pattern", "ground_truth_remove") if getattr(self.dataset, name)]
            if used:
                problem = f"is of type {arrow_type}, but {used[0]} applies to text."
                raise StagingError(f"column {self.columns.ground_truth}", problem, f"Omit {used[0]}.")
            return column
        truths = []
        for row, text in zip(row_numbers, column.to_pylist(), strict=True):
            truth = text
            if pattern and text is not None:
                matches = pattern.findall(text)
                if not matches:
                    checker.add(split, row, "has a ground truth that ground_truth_pattern does not match", text)
                # A result comes last, after its derivation.
                truth = matches[-1] if matches else text
            for character in removed_characters if truth else "":
                truth = truth.replace(character, "")
            truths.append(truth)
        return pyarrow.array(truths, pyarrow.string())
