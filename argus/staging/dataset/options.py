# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of datasets; see the module rl_dataset for their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator

from ..errors import StagingError
from ..items import Item, Options, Texts
from .upload import Upload

# The options that apply to columns, each a text.
COLUMN_TEXTS = ("data_source", "ability", "system_prompt", "instruction", "ground_truth_pattern", "ground_truth_remove")


class Columns(Options):
    """The names of the columns with each role."""

    prompt: str | None = None
    ground_truth: str | None = None
    data_source: str | None = None
    ability: str | None = None
    messages: str | None = None
    response: str | None = None
    extra: Texts = Field(default_factory=list)

    @property
    def given(self) -> dict[str, str | list[str]]:
        """The roles that have a column, as JSON."""
        return {name: value for name, value in self if value}


@dataclass(frozen=True)
class Measure:
    """By which model's tokenizer rows are measured, and how many tokens they may have."""

    model: str
    max_prompt_length: int

    def to_json(self) -> dict[str, object]:
        return {"model": self.model, "max_prompt_length": self.max_prompt_length}


class DatasetOptions(Item):
    kind: Literal["dataset"] = "dataset"
    name: str
    workload: Literal["rl", "sft"] = "rl"
    files: dict[Literal["train", "val"], Texts] = Field(default_factory=dict)
    upload: Upload | None = None
    hub: str | None = None
    revision: str = "main"
    endpoint: str | None = None
    token: str | None = Field(default=None, repr=False)
    script: str | None = None
    code_path: str | None = None
    arguments: Texts = Field(default_factory=list)
    tiny: bool = False
    columns: Columns = Field(default_factory=Columns)
    data_source: str | None = None
    ability: str | None = None
    system_prompt: str | None = None
    instruction: str | None = None
    ground_truth_pattern: str | None = None
    ground_truth_remove: str | None = None
    val_rows: int | None = None
    model: str | None = None
    max_prompt_length: int | None = None

    @field_validator("files", mode="before")
    @classmethod
    def _with_patterns(cls, given: Any) -> Any:
        return {split: patterns for split, patterns in given.items() if patterns} if isinstance(given, dict) else given

    @property
    def measure(self) -> Measure | None:
        """Raises StagingError for one of its options without the other."""
        if self.model is None and self.max_prompt_length is None:
            return None
        if self.model is None or self.max_prompt_length is None:
            raise StagingError("model, max_prompt_length", "only one of them is set.", "Set both, or none.")
        return Measure(self.model, self.max_prompt_length)
