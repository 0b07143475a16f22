# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts the columns of a dataset to verl's schema, a batch at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import StagingError
from ..manifest import Facts
from .arrow import as_text, numbers
from .checks import Checker, Found
from .messages import Messages, messages_of
from .options import COLUMN_TEXTS, Columns, DatasetOptions
from .schema import RL, SFT, content_type, is_text

# pyarrow's own types, which are not available to the type checker.
Array = Any
Batch = Any
# The roles that columns can have for each workload.
ROLES_OF_COLUMNS = {
    RL: ("prompt", "ground_truth", "data_source", "ability", "extra"),
    SFT: ("messages", "prompt", "response", "extra"),
}


@dataclass(frozen=True)
class Form:
    """How rows are converted to verl's schema; without columns they already have it."""

    workload: str = RL
    columns: Columns = field(default_factory=Columns)
    data_source: str | None = None
    ability: str | None = None
    system_prompt: str | None = None
    instruction: str | None = None
    ground_truth_pattern: str | None = None
    ground_truth_remove: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in COLUMN_TEXTS if getattr(self, name) is not None]
        if not self.has_columns:
            if given:
                todo = "Set columns, or omit these options."
                raise StagingError(", ".join(given), "apply to columns, but columns is not set.", todo)
            return
        unknown = [name for name in self.columns.given if name not in ROLES_OF_COLUMNS[self.workload]]
        if unknown:
            todo = f"Set only {', '.join(ROLES_OF_COLUMNS[self.workload])}."
            raise StagingError("columns", f"has no {', '.join(unknown)} for {self.workload}.", todo)
        wrong = self._rl_problem() if self.workload == RL else self._sft_problem(given)
        if wrong:
            raise StagingError("columns", *wrong)
        self._regex()

    @property
    def has_columns(self) -> bool:
        return bool(self.columns.given)

    def _rl_problem(self) -> tuple[str, str] | None:
        columns = self.columns.given
        missing = [name for name in ("prompt", "ground_truth") if name not in columns]
        if missing:
            return f"has no {', '.join(missing)}.", "Set it to the name of a column."
        for name in ("data_source", "ability"):
            if name in columns and getattr(self, name) is not None:
                return f"has {name}, which is also set as a text.", "Omit one of them."
        if "data_source" not in columns and not self.data_source:
            return "has no data_source.", "Set data_source: verl selects the reward function by it."
        own = sorted({"split", "index"} & set(self.columns.extra))
        if own:
            return f"has {', '.join(own)} in extra, which are always added.", "Omit them, or rename the columns."
        return None

    def _sft_problem(self, given: Sequence[str]) -> tuple[str, str] | None:
        columns = self.columns.given
        if ("messages" in columns) == bool({"prompt", "response"} & set(columns)):
            return "needs either messages, or prompt and response.", "Set them to the names of columns."
        missing = [name for name in ("prompt", "response") if name not in columns]
        if "messages" not in columns and missing:
            return f"has no {missing[0]}.", "Set it to the name of a column."
        useless = [name for name in given if name not in ("system_prompt", "instruction")]
        if "messages" in columns:
            useless = list(given)
        if useless:
            return f"does not use {', '.join(useless)} here.", "Omit it."
        if "messages" in self.columns.extra:
            return "has messages in extra, which is built from the other columns.", "Omit it."
        return None

    def _regex(self) -> re.Pattern[str] | None:
        if self.ground_truth_pattern is None:
            return None
        todo = "Give a regular expression with one group: #### (.+)"
        try:
            pattern = re.compile(self.ground_truth_pattern)
        except re.error as error:
            raise StagingError("ground_truth_pattern", f"is not a regular expression: {error}.", todo) from error
        if pattern.groups != 1:
            raise StagingError("ground_truth_pattern", f"has {pattern.groups} groups.", todo)
        return pattern

    @property
    def identity(self) -> Facts:
        """The options that determine the rows, as JSON."""
        values = {**vars(self), "columns": self.columns.given or None}
        return {name: value for name, value in values.items() if value is not None}

    def needs(self) -> list[str]:
        """The columns that are read; empty for all."""
        named = [[value] if isinstance(value, str) else value for value in self.columns.given.values()]
        return list(dict.fromkeys(name for names in named for name in names))

    def apply(self, batch: Batch, split: str, rows: Array, checker: Checker) -> Batch:
        """The rows in verl's schema, without split and index.

        Rows that cannot be converted are added to the checker.
        """
        if not self.has_columns:
            return batch
        return self._rl(batch, split, rows, checker) if self.workload == RL else self._sft(batch, split, rows, checker)

    def finish(self, batch: Batch, split: str, first: int) -> Batch:
        """The rows with split and index in extra_info, as in the output of verl's own scripts."""
        import pyarrow

        if not self.has_columns or self.workload != RL:
            return batch
        info = batch.column("extra_info")
        names = [info.type.field(index).name for index in range(info.type.num_fields)]
        own = {"split": pyarrow.repeat(split, batch.num_rows), "index": numbers(first, batch.num_rows)}
        fields = {
            **own,
            **{name: values for name, values in zip(names, info.flatten(), strict=True) if name not in own},
        }
        index = batch.schema.get_field_index("extra_info")
        return batch.set_column(index, "extra_info", pyarrow.StructArray.from_arrays(fields.values(), list(fields)))

    def _rl(self, batch: Batch, split: str, rows: Array, checker: Checker) -> Batch:
        import pyarrow

        count = batch.num_rows
        prompt = messages_of(self._prompt(batch, split, rows, checker), count)
        truth = self._ground_truth(batch.column(self.columns.ground_truth), split, rows, checker)
        info = {"split": pyarrow.nulls(count), **{name: batch.column(name) for name in self.columns.extra}}
        converted = {
            "data_source": self._text(batch, "data_source"),
            "prompt": prompt,
            "ability": self._text(batch, "ability"),
            "reward_model": pyarrow.StructArray.from_arrays(
                [pyarrow.repeat("rule", count), truth], ["style", "ground_truth"]
            ),
            "extra_info": pyarrow.StructArray.from_arrays(info.values(), list(info)),
        }
        return pyarrow.RecordBatch.from_pydict(converted)

    def _sft(self, batch: Batch, split: str, rows: Array, checker: Checker) -> Batch:
        import pyarrow

        if self.columns.messages:
            messages = batch.column(self.columns.messages)
        else:
            parts = self._prompt(batch, split, rows, checker)
            answer = text_column(batch, self.columns.response)
            parts.append(Messages.one_per_row("assistant", answer, parts[-1].values.type))
            messages = messages_of(parts, batch.num_rows)
        extra = {name: batch.column(name) for name in self.columns.extra}
        return pyarrow.RecordBatch.from_pydict({"messages": messages, **extra})

    def _text(self, batch: Batch, name: str) -> Array:
        """A column, or the same text in every row."""
        import pyarrow

        column = getattr(self.columns, name)
        if column:
            return text_column(batch, column)
        return pyarrow.repeat(getattr(self, name) or "", batch.num_rows)

    def _prompt(self, batch: Batch, split: str, rows: Array, checker: Checker) -> list[Messages]:
        import pyarrow
        from pyarrow import compute

        column = batch.column(self.columns.prompt)
        if is_text(column.type):
            prompt = Messages.one_per_row("user", as_text(column))
        elif content_type(column.type) is not None:
            prompt = Messages.of(column)
        else:
            what = f"is of type {column.type}, neither text nor a list of {{role, content}}."
            raise StagingError(f"column {self.columns.prompt}", what, "Set another column, or change its type.")
        if self.instruction is not None:
            prompt = prompt.with_instruction(self.instruction)
        if self.system_prompt is None:
            return [prompt]
        has_own = compute.equal(prompt.role(prompt.firsts()), "system")
        what = "has its own system message besides system_prompt"
        checker.add(split, Found(what, has_own, rows.filter(compute.greater(prompt.lengths, 0))))
        text = pyarrow.repeat(self.system_prompt, batch.num_rows)
        return [Messages.one_per_row("system", text, prompt.values.type), prompt]

    def _ground_truth(self, column: Array, split: str, rows: Array, checker: Checker) -> Array:
        from pyarrow import compute

        truth = self._matched(column, split, rows, checker)
        for character in self.ground_truth_remove or "":
            if not is_text(truth.type):
                what = f"is of type {truth.type}, but ground_truth_remove applies to text."
                raise StagingError(f"column {self.columns.ground_truth}", what, "Omit ground_truth_remove.")
            truth = compute.replace_substring(truth, character, "")
        return truth

    def _matched(self, column: Array, split: str, rows: Array, checker: Checker) -> Array:
        import pyarrow
        from pyarrow import types

        kind = column.type
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            # verl's reward functions compare texts: the number 42 does not equal "42".
            column = column.cast(pyarrow.string())
        pattern = self._regex()
        if pattern is None:
            return as_text(column) if is_text(column.type) else column
        if not is_text(column.type):
            what = f"is of type {kind}, but ground_truth_pattern applies to text."
            raise StagingError(f"column {self.columns.ground_truth}", what, "Omit ground_truth_pattern.")
        texts = column.to_pylist()
        found = [None if text is None else last_group(pattern, text) for text in texts]
        missed = pyarrow.array([text is not None and truth is None for text, truth in zip(texts, found, strict=True)])
        what = "has a ground truth that ground_truth_pattern does not match"
        checker.add(split, Found(what, missed, rows, as_text(column)))
        # So that these rows are not reported as without a ground truth too.
        kept = [text if truth is None else truth for text, truth in zip(texts, found, strict=True)]
        return pyarrow.array(kept, pyarrow.string())


def last_group(pattern: re.Pattern[str], text: str) -> str | None:
    """The group of the last match: a result comes last, after its derivation."""
    matches = list(pattern.finditer(text))
    return matches[-1][1] if matches else None


def text_column(batch: Batch, name: str | None) -> Array:
    column = batch.column(name)
    if not is_text(column.type):
        todo = "Set another column, or change its type."
        raise StagingError(f"column {name}", f"is of type {column.type}, not text.", todo)
    return as_text(column)


def form_of(options: DatasetOptions) -> Form:
    """The form for the options of a dataset."""
    return Form(options.workload, options.columns, **{name: getattr(options, name) for name in COLUMN_TEXTS})
