# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verl's form of a dataset, and how the columns of other datasets are brought into it, a batch at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import StagingError
from .arrow import as_text, is_blank, numbers, running
from .checks import Checker
from .schema import RL, SFT, content_type, is_text

# pyarrow's own types: it is imported where it is used, since only nodes have it.
Array = Any
Batch = Any
# Of each workload, what a column can be.
ROLES_OF_COLUMNS = {
    RL: ("prompt", "ground_truth", "data_source", "ability", "extra"),
    SFT: ("messages", "prompt", "response", "extra"),
}
# The options that work on columns.
COLUMN_TEXTS = ("data_source", "ability", "system_prompt", "instruction", "ground_truth_pattern", "ground_truth_remove")


@dataclass(frozen=True)
class Form:
    """How rows are brought into verl's form; without columns they are in it already.

    columns: the names of the columns by what they are, as ROLES_OF_COLUMNS says; "extra" is a list of names.
    """

    workload: str = RL
    columns: Mapping[str, Any] = field(default_factory=dict)
    data_source: str | None = None
    ability: str | None = None
    system_prompt: str | None = None
    instruction: str | None = None
    ground_truth_pattern: str | None = None
    ground_truth_remove: str | None = None

    def __post_init__(self) -> None:
        texts = (
            "data_source",
            "ability",
            "system_prompt",
            "instruction",
            "ground_truth_pattern",
            "ground_truth_remove",
        )
        given = [name for name in texts if getattr(self, name) is not None]
        if not self.columns:
            if given:
                what = "work on columns, and none are named."
                raise StagingError(", ".join(given), what, "Name them with columns, or leave these options out.")
            return
        unknown = [name for name in self.columns if name not in ROLES_OF_COLUMNS[self.workload]]
        if unknown:
            todo = f"Name those of {', '.join(ROLES_OF_COLUMNS[self.workload])}."
            raise StagingError("columns", f"has no {', '.join(unknown)} for {self.workload}.", todo)
        wrong = self._rl_problem() if self.workload == RL else self._sft_problem(given)
        if wrong:
            raise StagingError("columns", *wrong)
        self._regex()

    def _rl_problem(self) -> tuple[str, str] | None:
        missing = [name for name in ("prompt", "ground_truth") if name not in self.columns]
        if missing:
            return f"names no {', '.join(missing)}.", "Say which columns these are."
        for name in ("data_source", "ability"):
            if name in self.columns and getattr(self, name) is not None:
                return f"names {name}, which is given as a text as well.", "Leave out one of both."
        if "data_source" not in self.columns and not self.data_source:
            return "names no data_source.", "Set data_source: verl chooses the reward function by it."
        own = sorted({"split", "index"} & set(self.columns.get("extra", ())))
        if own:
            return f"has {', '.join(own)} in extra, which are always put there.", "Leave them out, or rename them."
        return None

    def _sft_problem(self, given: Sequence[str]) -> tuple[str, str] | None:
        if ("messages" in self.columns) == bool({"prompt", "response"} & set(self.columns)):
            return "has to name messages, or prompt and response.", "Say which columns these are."
        missing = [name for name in ("prompt", "response") if name not in self.columns]
        if "messages" not in self.columns and missing:
            return f"names no {missing[0]}.", "Say which column that is."
        useless = [name for name in given if name not in ("system_prompt", "instruction")]
        if "messages" in self.columns:
            useless = list(given)
        if useless:
            return f"makes no use of {', '.join(useless)} here.", "Leave it out."
        if "messages" in self.columns.get("extra", ()):
            return "has messages in extra, which is made of the others.", "Leave it out."
        return None

    def _regex(self) -> re.Pattern[str] | None:
        if self.ground_truth_pattern is None:
            return None
        todo = "Give a regular expression with one group: #### (.+)"
        try:
            pattern = re.compile(self.ground_truth_pattern)
        except re.error as error:
            raise StagingError("ground_truth_pattern", f"is no regular expression: {error}.", todo) from error
        if pattern.groups != 1:
            raise StagingError("ground_truth_pattern", f"has {pattern.groups} groups.", todo)
        return pattern

    @property
    def identity(self) -> dict[str, Any]:
        given = {name: value for name, value in vars(self).items() if value is not None and value != {}}
        return {**given, "columns": dict(self.columns)} if self.columns else given

    def needs(self) -> list[str]:
        """The columns that are read; all when there are none."""
        named = [[value] if isinstance(value, str) else value for value in self.columns.values()]
        return list(dict.fromkeys(name for names in named for name in names))

    def apply(self, batch: Batch, split: str, rows: Array, checker: Checker) -> Batch:
        """The same rows in verl's form, but for split and index; the checker is told of those that cannot be."""
        if not self.columns:
            return batch
        return self._rl(batch, split, rows, checker) if self.workload == RL else self._sft(batch, split, rows, checker)

    def finish(self, batch: Batch, split: str, first: int) -> Batch:
        """The same rows with split and index in extra_info, as verl's own scripts put them there."""
        import pyarrow

        if not self.columns or self.workload != RL:
            return batch
        info = batch.column("extra_info")
        names = [info.type.field(index).name for index in range(info.type.num_fields)]
        own = {"split": pyarrow.repeat(split, batch.num_rows), "index": numbers(first, batch.num_rows)}
        fields = {
            **own,
            **{name: values for name, values in zip(names, info.flatten(), strict=True) if name not in own},
        }
        place = batch.schema.get_field_index("extra_info")
        return batch.set_column(place, "extra_info", pyarrow.StructArray.from_arrays(fields.values(), list(fields)))

    def _rl(self, batch: Batch, split: str, rows: Array, checker: Checker) -> Batch:
        import pyarrow

        count = batch.num_rows
        prompt = messages_of(self._prompt(batch, split, rows, checker), count)
        truth = self._ground_truth(batch.column(self.columns["ground_truth"]), split, rows, checker)
        extra = self.columns.get("extra", ())
        info = {"split": pyarrow.nulls(count), **{name: batch.column(name) for name in extra}}
        made = {
            "data_source": self._text(batch, "data_source"),
            "prompt": prompt,
            "ability": self._text(batch, "ability"),
            "reward_model": pyarrow.StructArray.from_arrays(
                [pyarrow.repeat("rule", count), truth], ["style", "ground_truth"]
            ),
            "extra_info": pyarrow.StructArray.from_arrays(info.values(), list(info)),
        }
        return pyarrow.RecordBatch.from_pydict(made)

    def _sft(self, batch: Batch, split: str, rows: Array, checker: Checker) -> Batch:
        import pyarrow

        if "messages" in self.columns:
            messages = batch.column(self.columns["messages"])
        else:
            parts = self._prompt(batch, split, rows, checker)
            answer = text_column(batch, self.columns["response"])
            parts.append(Messages.each("assistant", answer, parts[-1].values.type))
            messages = messages_of(parts, batch.num_rows)
        extra = {name: batch.column(name) for name in self.columns.get("extra", ())}
        return pyarrow.RecordBatch.from_pydict({"messages": messages, **extra})

    def _text(self, batch: Batch, name: str) -> Array:
        """A column, or the same text in every row."""
        import pyarrow

        if name in self.columns:
            return text_column(batch, self.columns[name])
        return pyarrow.repeat(getattr(self, name) or "", batch.num_rows)

    def _prompt(self, batch: Batch, split: str, rows: Array, checker: Checker) -> list[Messages]:
        import pyarrow
        from pyarrow import compute

        column = batch.column(self.columns["prompt"])
        if is_text(column.type):
            prompt = Messages.each("user", as_text(column))
        elif content_type(column.type) is not None:
            prompt = Messages.listed(column)
        else:
            what = f"is of type {column.type}, neither text nor a list of {{role, content}}."
            raise StagingError(f"column {self.columns['prompt']}", what, "Name another one, or change it.")
        if self.instruction is not None:
            prompt = prompt.with_instruction(self.instruction)
        if self.system_prompt is None:
            return [prompt]
        has_own = compute.equal(prompt.role(prompt.firsts()), "system")
        what = "has a system message of its own, beside system_prompt"
        checker.add(split, has_own, rows.filter(compute.greater(prompt.lengths, 0)), None, what)
        said = pyarrow.repeat(self.system_prompt, batch.num_rows)
        return [Messages.each("system", said, prompt.values.type), prompt]

    def _ground_truth(self, column: Array, split: str, rows: Array, checker: Checker) -> Array:
        from pyarrow import compute

        truth = self._matched(column, split, rows, checker)
        for character in self.ground_truth_remove or "":
            if not is_text(truth.type):
                what = f"is of type {truth.type}, and ground_truth_remove is for text."
                raise StagingError(f"column {self.columns['ground_truth']}", what, "Leave it out.")
            truth = compute.replace_substring(truth, character, "")
        return truth

    def _matched(self, column: Array, split: str, rows: Array, checker: Checker) -> Array:
        import pyarrow
        from pyarrow import types

        kind = column.type
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            # verl's reward functions compare texts: the number 42 is no "42".
            column = column.cast(pyarrow.string())
        pattern = self._regex()
        if pattern is None:
            return as_text(column) if is_text(column.type) else column
        if not is_text(column.type):
            what = f"is of type {kind}, and ground_truth_pattern is for text."
            raise StagingError(f"column {self.columns['ground_truth']}", what, "Leave the pattern out.")
        texts = column.to_pylist()
        found = [None if text is None else last_group(pattern, text) for text in texts]
        missed = pyarrow.array([text is not None and truth is None for text, truth in zip(texts, found, strict=True)])
        what = "has a ground truth in which ground_truth_pattern finds nothing"
        checker.add(split, missed, rows, as_text(column), what)
        # So that nobody says of these rows that they have none.
        kept = [text if truth is None else truth for text, truth in zip(texts, found, strict=True)]
        return pyarrow.array(kept, pyarrow.string())


def last_group(pattern: re.Pattern[str], text: str) -> str | None:
    """What the group of the last match has; answers come last, after what leads to them."""
    matches = list(pattern.finditer(text))
    return matches[-1][1] if matches else None


def text_column(batch: Batch, name: str) -> Array:
    column = batch.column(name)
    if not is_text(column.type):
        raise StagingError(f"column {name}", f"is of type {column.type}, not text.", "Name another one, or change it.")
    return as_text(column)


@dataclass(frozen=True)
class Messages:
    """Some messages of each row of a batch: how many, and one after the other which row each is of and what it says."""

    lengths: Array
    row: Array
    values: Array

    @classmethod
    def each(cls, role: str, content: Array, kind: Any = None) -> Messages:
        """One message in each row; other messages of the conversation may have more fields than role and content."""
        import pyarrow

        count = len(content)
        if kind is None:
            kind = pyarrow.struct([("role", pyarrow.string()), ("content", content.type)])
        check_text(kind)
        known = {"role": pyarrow.repeat(role, count), "content": content}
        fields = [kind.field(index) for index in range(kind.num_fields)]
        arrays = [
            known[each.name].cast(each.type) if each.name in known else pyarrow.nulls(count, each.type)
            for each in fields
        ]
        values = pyarrow.StructArray.from_arrays(arrays, fields=fields)
        return cls(pyarrow.repeat(pyarrow.scalar(1, pyarrow.int64()), count), numbers(0, count), values)

    @classmethod
    def listed(cls, column: Array) -> Messages:
        import pyarrow
        from pyarrow import compute, types

        if types.is_fixed_size_list(column.type):
            column = column.cast(pyarrow.list_(column.type.value_type))
        lengths = compute.fill_null(compute.list_value_length(column), 0).cast(pyarrow.int64())
        row = compute.list_parent_indices(column).cast(pyarrow.int64())
        return cls(lengths, row, compute.list_flatten(column))

    def role(self, places: Array) -> Array:
        from pyarrow import compute

        return as_text(compute.struct_field(self.values.take(places), "role"))

    def firsts(self) -> Array:
        """Where the first message is of each row that has any."""
        from pyarrow import compute

        return running(self.lengths).slice(0, len(self.lengths)).filter(compute.greater(self.lengths, 0))

    def with_instruction(self, instruction: str) -> Messages:
        """The same with a text after the last message of each row; what says nothing still says nothing."""
        import pyarrow
        from pyarrow import compute

        kind = self.values.type
        check_text(kind)
        content = as_text(compute.struct_field(self.values, "content"))
        lasts = compute.subtract(running(self.lengths).slice(1), 1).filter(compute.greater(self.lengths, 0))
        is_last = compute.is_in(numbers(0, len(content)), value_set=lasts)
        space = "" if instruction[:1].isspace() else " "
        longer = compute.binary_join_element_wise(content, instruction, space)
        content = compute.if_else(compute.and_(is_last, compute.invert(is_blank(content))), longer, content)
        names = [kind.field(index).name for index in range(kind.num_fields)]
        arrays = [content if name == "content" else compute.struct_field(self.values, name) for name in names]
        return Messages(self.lengths, self.row, pyarrow.StructArray.from_arrays(arrays, names))


def check_text(kind: Any) -> None:
    content = kind.field(kind.get_field_index("content")).type
    if not is_text(content):
        what = f"has content of type {content}, beside which no text can be put."
        raise StagingError("columns.prompt", what, "Leave system_prompt and instruction out, or write it as text.")


def messages_of(parts: Sequence[Messages], count: int) -> Array:
    """The messages of all parts, row by row, in the order of the parts."""
    import pyarrow
    from pyarrow import compute

    # Sorting is stable: within a row the parts stay in their order.
    order = compute.sort_indices(pyarrow.concat_arrays([part.row for part in parts]))
    values = pyarrow.concat_arrays([part.values for part in parts]).take(order)
    lengths = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int64()), count)
    for part in parts:
        lengths = compute.add(lengths, part.lengths)
    return pyarrow.ListArray.from_arrays(running(lengths).cast(pyarrow.int32()), values)


def form_of(options: Mapping[str, Any], workload: str) -> Form:
    """What a user says of the columns; `options` as the module rl_dataset has them."""
    columns = {role: name for role, name in (options.get("columns") or {}).items() if name}
    return Form(workload, columns, **{name: options.get(name) for name in COLUMN_TEXTS})
