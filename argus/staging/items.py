# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of models and of the users' own code, and what they have in common with those of datasets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .dataset.upload import UploadFile
from .options import StageOptions

# A single text is a list of one, as modules of Ansible accept it.
Texts = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Options(BaseModel):
    """Options of which those without a value have their defaults. YAML reads a commit of digits as a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _without_none(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


class Item(Options):
    """What models and datasets have in common.

    repair: restore files that no longer fit the manifest. verify: whether existing files are compared with it by size
    and time of change, or by their content.
    """

    state: Literal["present", "absent"] = "present"
    repair: bool = False
    verify: Literal["quick", "full"] = "quick"

    def how(self, check: bool) -> StageOptions:
        return StageOptions(check, self.repair, self.verify == "full")


class ModelItem(Item):
    """The options of a model; see the module hf_model."""

    kind: Literal["model"] = "model"
    name: str | None = None
    source: str | None = None
    revision: str = "main"
    exclude: Texts | None = None
    endpoint: str | None = None
    token: str | None = Field(default=None, repr=False)


class UserCode(Options):
    """Files of a controller for user/code/, by their paths there. diff: return their content before."""

    kind: Literal["user_code"] = "user_code"
    name: str
    files: list[UploadFile]
    diff: bool = False
