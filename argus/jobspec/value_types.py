# SPDX-License-Identifier: Apache-2.0
"""The types of a JobSpec's values: how pydantic reads and checks them, also from the command line."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from ..io.hydra import override_list

NUMBER_PATTERN = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
DURATION = re.compile(rf"(?:{NUMBER_PATTERN}d)?(?:{NUMBER_PATTERN}h)?(?:{NUMBER_PATTERN}m)?(?:{NUMBER_PATTERN}s?)?")
# Longer durations are typing errors, or numbers that clocks cannot add.
MAX_DURATION_DAYS = 3650
# Ray refuses less: ray/_common/ray_option_utils.py:_validate_resource_quantity
MIN_AMOUNT = 0.0001


class UnfitError(ValueError):
    """A value that a key of a JobSpec cannot have, with the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def require(test: Callable[[Any], object], problem: str, remedy: str) -> AfterValidator:
    """A validator that refuses values without the test, except None. `problem` shows the value at {}."""

    def check(value: Any) -> Any:
        if value is not None and not test(value):
            raise UnfitError(problem.format(repr(value)), remedy)
        return value

    return AfterValidator(check)


def require_between(least: int, most: int, meaning: str) -> AfterValidator:
    return require(lambda value: least <= value <= most, "is {}", f"give {meaning}, {least} to {most}")


def refuse_bool(value: object) -> object:
    """The value, unless it is true or false, which pydantic takes for numbers. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("a truth value is no number")
    return value


def check_amount(value: Any) -> Any:
    """The value, if Ray accepts it as the amount of a resource. Raises UnfitError."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and (value == 0 or MIN_AMOUNT <= value < math.inf)):
        raise UnfitError(f"is {value!r}", f"give a number: 0, or {MIN_AMOUNT} or more")
    return value


def parse_duration(value: object) -> float | None:
    """The seconds of a number or of a text such as ``1h30m``; None for None and for 0. Raises UnfitError."""
    if value is None:
        return None
    match = DURATION.fullmatch(text := str(value))
    if not text or not match:
        raise UnfitError(f"{text!r} is not a duration", "give seconds, or a value such as 90m, 1h30m or 2d")
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    total = days * 86_400 + hours * 3600 + minutes * 60 + rest
    if total > MAX_DURATION_DAYS * 86_400:
        raise UnfitError(f"{text!r} is longer than {MAX_DURATION_DAYS} days", "give a shorter duration")
    return total or None


def split_commas(value: object) -> object:
    """A list; the command line has it as text with commas."""
    return value.split(",") if isinstance(value, str) else value


def parse_mapping(value: object) -> object:
    """A mapping; the command line has it as ``NAME=VALUE,NAME=VALUE`` or in JSON. Raises ValueError."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("{"):
        return json.loads(value)
    lexer = shlex.shlex(value, posix=True)
    lexer.whitespace, lexer.whitespace_split = f"{lexer.whitespace},", True
    words = list(lexer)
    if not all("=" in word for word in words):
        raise ValueError("write NAME=VALUE")
    return dict(word.split("=", 1) for word in words)


Whole = Annotated[int, BeforeValidator(refuse_bool)]
Number = Annotated[float, BeforeValidator(refuse_bool)]
Duration = Annotated[float | None, BeforeValidator(parse_duration)]
Names = Annotated[tuple[str, ...], BeforeValidator(split_commas)]
# A program and its arguments; as text, they are split like in a shell.
Command = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: shlex.split(value) if isinstance(value, str) else value)
]
# Shell commands, each one text.
Commands = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
Values = Annotated[dict[Any, Any], BeforeValidator(parse_mapping)]
Overrides = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(override_list(value)))]
Size = Annotated[Whole | None, require(lambda value: value >= 1, "is {}", "give 1 or more, or leave it out to use all")]
Resources = Annotated[
    dict[str, Annotated[Any, AfterValidator(check_amount)]],
    BeforeValidator(parse_mapping),
    require(lambda value: "CPU" not in value, "must not contain CPU", "use ray.resources.entrypoint_num_cpus for CPUs"),
    # Ray accepts the job and fails it later.
    require(lambda value: "GPU" not in value, "must not contain GPU", "remove it: the trainer asks for its GPUs"),
    require(
        lambda value: any(value.values()),
        "contains nothing that keeps the driver off the head",
        "keep {worker_node: 1}, or name a resource that only workers have",
    ),
]
