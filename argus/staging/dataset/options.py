# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the module rl_dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# The options that apply to columns, each a text.
COLUMN_TEXTS = ("data_source", "ability", "system_prompt", "instruction", "ground_truth_pattern", "ground_truth_remove")


@dataclass(frozen=True)
class Columns:
    """The names of the columns with each role."""

    prompt: str | None = None
    ground_truth: str | None = None
    data_source: str | None = None
    ability: str | None = None
    messages: str | None = None
    response: str | None = None
    extra: Sequence[str] = ()

    @property
    def given(self) -> dict[str, str | list[str]]:
        """The roles that have a column, as JSON."""
        own = {name: list(value) if name == "extra" else value for name, value in vars(self).items()}
        return {name: value for name, value in own.items() if value}


@dataclass(frozen=True)
class Measure:
    """By which model's tokenizer rows are measured, and how many tokens they may have."""

    model: str
    max_prompt_length: int

    def to_json(self) -> dict[str, object]:
        return {"model": self.model, "max_prompt_length": self.max_prompt_length}


@dataclass(frozen=True)
class DatasetOptions:
    """The options of the module; see its documentation for their meaning."""

    name: str
    workload: str = "rl"
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    upload: Mapping[str, Any] = field(default_factory=dict)
    shared_root_source: str | None = None
    hub: str | None = None
    revision: str | None = None
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)
    script: str | None = None
    code_path: str | None = None
    arguments: Sequence[str] = ()
    tiny: bool = False
    columns: Columns = field(default_factory=Columns)
    data_source: str | None = None
    ability: str | None = None
    system_prompt: str | None = None
    instruction: str | None = None
    ground_truth_pattern: str | None = None
    ground_truth_remove: str | None = None
    val_rows: int | None = None
    model: str | None = None
    max_prompt_length: int | None = None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> DatasetOptions:
        """From the parameters of the module, which has further ones."""
        given = {name: params[name] for name in cls.__dataclass_fields__ if params.get(name) is not None}
        files = {split: patterns for split, patterns in given.pop("files", {}).items() if patterns}
        columns = {role: name for role, name in given.pop("columns", {}).items() if name}
        return cls(**given, files=files, columns=Columns(**columns))

    @property
    def measure(self) -> Measure | None:
        return Measure(self.model, self.max_prompt_length) if self.model and self.max_prompt_length else None
