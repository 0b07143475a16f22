# SPDX-License-Identifier: Apache-2.0
"""Parses the items that `stage` gets, and turns all wrong options into findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import get_args

from pydantic import BaseModel, ValidationError

from ..common.findings import Finding
from ..common.text import spelling_hint
from ..jobs.services import RefusedError
from ..staging.items import ITEMS, Options
from ..staging.manifest import item_name


def parse_item(kind: str, values: object) -> Options:
    """The item with these options. kind: one of ITEMS. Raises RefusedError with all options that are wrong."""
    model = ITEMS[kind]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        findings = [option_finding(model, detail["loc"], detail["type"], detail["msg"]) for detail in error.errors()]
        raise RefusedError(findings) from error


def check_items(items: Mapping[str, Sequence[object]]) -> None:
    """Parse all items. items: by their kinds. Raises RefusedError with all wrong options, each located in its item."""
    findings: list[Finding] = []
    for kind, listed in items.items():
        for number, item in enumerate(listed, 1):
            try:
                parse_item(kind, item)
            except RefusedError as error:
                name = item_name(item) or f"number {number}"
                findings += [
                    dataclasses.replace(finding, where=f"{kind} {name}: {finding.where}".removesuffix(": "))
                    for finding in error.findings
                ]
    if findings:
        raise RefusedError(findings)


def option_finding(model: type[BaseModel], place: Sequence[int | str], kind: str, problem: str) -> Finding:
    """The finding for an error of pydantic. place: the keys that lead to the value. kind: the type of the error."""
    where = ".".join(map(str, place))
    if kind == "model_type":
        return Finding(where, "is not a mapping.", "Give it as {name: value}.")
    if kind != "extra_forbidden":
        return Finding(where, f"{problem}.", "Correct it.")
    for key in place[:-1]:
        if isinstance(key, str):
            annotation = model.model_fields[key].annotation
            model = next(candidate for candidate in (annotation, *get_args(annotation)) if isinstance(candidate, type))
    names = [field.alias or name for name, field in model.model_fields.items()]
    return Finding(where, "is unknown.", spelling_hint(str(place[-1]), names) or f"Known are: {', '.join(names)}")
