# SPDX-License-Identifier: Apache-2.0
"""The options of models, datasets, snapshots and user code, as users write them in the inventory.

`make generate` writes the tables of the README of the role staging from the descriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .upload import UploadFile

# A list of texts. A single text stands for a list of one, as in modules of Ansible.
Texts = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
# The options of Dataset, each a text, that need `columns`; row_converter.py checks that.
COLUMN_TEXTS = ("data_source", "ability", "system_prompt", "instruction", "ground_truth_pattern", "ground_truth_remove")


class Options(BaseModel):
    """Base of items and of mappings in them. null counts as not set, and a number as text: YAML reads digits as one."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _without_none(cls, items: Any) -> Any:
        return {name: value for name, value in items.items() if value is not None} if isinstance(items, dict) else items


class Item(Options):
    """The options that models, datasets and snapshots share."""

    state: Literal["present", "absent"] = Field(
        default="present",
        description="`present` creates or verifies it, `absent` removes it, unless a job that has not ended uses it.",
    )


class Model(Item):
    name: str | None = Field(
        default=None,
        description="The `model` of a JobSpec. Letters, digits, `.`, `_` and `-`, at most 63 characters. Required, "
        "unless `source` is a job. Its default is then `<submission_id>-step-<step>`.",
    )
    source: str | None = Field(
        default=None,
        description="A repository of the hub (`Qwen/Qwen2.5-7B-Instruct`); an absolute path that the node sees, of a "
        "directory in the format of transformers; a checkpoint of a job (`job:grpo-20260101-120000-1a2b@12`, without "
        "a step the last complete one); or `tiny`, a random model of two layers. Required unless `state=absent`.",
    )
    revision: str = Field(
        default="main",
        description="A branch, a tag or a commit of 40 digits, pinned to its commit when the model is first staged.",
    )
    exclude: Texts | None = Field(
        default=None,
        description="Patterns of files to leave out, such as `*.gguf`. A `*` also matches slashes. By default, weights "
        "in other formats if there are safetensors.",
    )


class Files(Options):  # of a dataset, by split
    train: Texts = Field(min_length=1, description="The files with the training rows.")
    val: Texts = Field(
        default=[],
        description="The files with the validation rows. For `workload=rl`, they or `val_rows` are required.",
    )

    @property
    def patterns(self) -> dict[str, list[str]]:
        """The patterns of each split that has files."""
        return {split: patterns for split, patterns in self if patterns}


class Columns(Options):
    """The names of the dataset's columns, by what they contain."""

    prompt: str | None = Field(default=None, description="The prompt, as text or as a list of `{role, content}`.")
    ground_truth: str | None = Field(
        default=None, description="For `workload=rl`, what the reward function compares. Numbers become text."
    )
    data_source: str | None = Field(
        default=None, description="The name by which verl selects the reward function, if rows have different ones."
    )
    ability: str | None = Field(default=None, description="The kind of task, if rows have different ones.")
    messages: str | None = Field(
        default=None,
        description="For `workload=sft`, the conversation, a list of `{role, content}` or `{from, value}`.",
    )
    response: str | None = Field(
        default=None, description="For `workload=sft` with `prompt`, the answer of the assistant."
    )
    extra: Texts = Field(
        default=[],
        description="Further columns to keep, for `workload=rl` in `extra_info`, beside `split` and `index`.",
    )

    @property
    def by_key(self) -> dict[str, str | list[str]]:
        """The keys that are set, such as prompt, with the names of their columns."""
        return {name: value for name, value in self if value}


class Dataset(Item):
    name: str = Field(
        description="The `dataset` of a JobSpec. Lowercase letters, digits, `.`, `_` and `-`, at most 63 characters."
    )
    workload: Literal["rl", "sft"] = Field(
        default="rl",
        description="`rl` for PPO and GRPO, with a column `prompt`; `sft` for SFT, with a column `messages`.",
    )
    files: Files | None = Field(
        default=None,
        description="The files with the rows, as paths or patterns; files of the repository if `hub` is set. Names end "
        "with `.parquet`, `.jsonl`, `.json` or `.csv`; all but the first may be compressed (`.gz`, `.bz2`, `.zst`).",
    )
    place: Literal["controller", "shared_root", "node"] | None = Field(
        default=None,
        alias="from",
        description="Where `files` are. `controller` is the machine that runs Ansible, with paths relative to the "
        "inventory; `shared_root` has paths relative to it, `node`, the head's, absolute ones. By default, relative "
        "paths are those of the controller, absolute ones those of the node.",
    )
    hub: str | None = Field(
        default=None,
        description="A dataset repository of the hub (`openai/gsm8k`). None of its code is run.",
    )
    revision: str = Field(
        default="main",
        description="A branch, a tag or a commit, pinned to its commit when the dataset is first staged.",
    )
    tiny: bool = Field(
        default=False,
        description="Generate 128 and 16 word problems of addition (32 for `workload=sft`), for a smoke test.",
    )
    columns: Columns = Field(
        default=Columns(),
        description="Which columns have which role; `tools`, `images`, `videos` and `audios` come along. Without it, "
        "the rows must have verl's schema, or for `workload=sft` the form of ShareGPT or Alpaca.",
    )
    data_source: str | None = Field(
        default=None,
        description="The `data_source` of all rows (`openai/gsm8k`). Required for `workload=rl` with `columns`, unless "
        "`columns.data_source` is given.",
    )
    ability: str | None = Field(default=None, description="The kind of task of all rows.")
    system_prompt: str | None = Field(
        default=None,
        description="A system message before each prompt. A prompt that already has one is an error.",
    )
    instruction: str | None = Field(
        default=None,
        description="Text after each prompt, with a space before it, unless it begins with white space.",
    )
    ground_truth_pattern: str | None = Field(
        default=None,
        description="A regular expression with one group. The group of the last match is the ground truth. Rows "
        "without a match are an error.",
    )
    ground_truth_remove: str | None = Field(
        default=None, description="Characters to remove from the ground truth, such as `,`."
    )
    val_rows: int | None = Field(
        default=None,
        description="How many rows of `train` become `val`, if there are no files for it, spread evenly.",
    )

    @property
    def patterns(self) -> dict[str, list[str]]:
        return self.files.patterns if self.files else {}


class Overlay(Options):
    path: str = Field(description="The directory, of the controller or of the shared root.")
    to: str = Field(description="The destination of its files, relative to the snapshot, such as `recipe/mine`.")


class Snapshot(Item):
    source: str | None = Field(
        default=None,
        description="A release (`verl==0.9.1`); a repository with a branch, a tag or a commit of 40 digits "
        "(`git+https://<host>/<path>@<ref>`, `git+ssh://git@<host>/<path>@<ref>`); the path of a directory of the "
        "controller, or of the shared root, that contains `verl/`; or the code id of a snapshot, to add `overlays` to "
        "it. Required unless `state=absent`.",
    )
    code_id: str = Field(
        default="",
        description="The `code_path` of a JobSpec. By default, derived from the source. Required with `state=absent`.",
    )
    overlays: list[Overlay] = Field(
        default=[],
        description="Directories of your own to copy over the snapshot, in this order.",
    )
    ssh_key: str | None = Field(
        default=None,
        description="A private key on the controller, for a repository over SSH.",
    )


class UserCode(Options):
    """Users' Python files on the controller, for user/code/ below the shared root. The action `stage` makes it."""

    name: str
    files: list[UploadFile]


ITEMS: Mapping[str, type[Options]] = {
    "model": Model,
    "dataset": Dataset,
    "snapshot": Snapshot,
    "user_code": UserCode,
}
