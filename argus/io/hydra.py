# SPDX-License-Identifier: Apache-2.0
"""Parses and writes Hydra overrides, such as ``+trainer.n=3``. No other module knows their grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Text that needs no quotes in Hydra's grammar.
BARE = re.compile(r"[A-Za-z0-9_./%+@?|-]+( [A-Za-z0-9_./%+@?|-]+)*")
# Text that Hydra would parse as a number, a boolean or null.
NOT_TEXT = re.compile(r"(true|false|null|[+-]?(nan|inf|[0-9._]+(e[+-]?[0-9_]+)?))", re.IGNORECASE)
# A number that YAML 1.1 takes for text, as it has no point or no sign in its exponent, such as 1e-6.
EXPONENT = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?e[+-]?[0-9]+", re.IGNORECASE)


def hydra_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{hydra_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    text = str(value)
    if BARE.fullmatch(text) and not NOT_TEXT.fullmatch(text):
        return text
    # Hydra unescapes quotes, and backslashes only before quotes.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    escaped = re.sub(r"(\\+)\Z", r"\1\1", escaped)
    return f"'{escaped}'"


def override_key(override: str) -> str:
    """The key of an override, without a prefix (+, ++, ~) and the package of a config group (``@package``)."""
    return override.partition("=")[0].strip().lstrip("+~").partition("@")[0].strip()


def override_text(override: str) -> str:
    """The value of an override as text, without quotes."""
    return override.partition("=")[2].strip("'\" ")


def is_true(overrides: Iterable[str], key: str) -> bool:
    """Whether the last override of a key sets it to true."""
    values = [override_text(override).lower() for override in overrides if override_key(override) == key]
    return values[-1:] == ["true"]


def override_list(overrides: Any) -> list[str]:
    """Overrides as a list of ``key=value`` and ``~key``, from such a list or a mapping, nested or with dotted keys.

    Raises ValueError if an entry is not an override.
    """
    if isinstance(overrides, Mapping):
        flat: list[str] = []
        for key, value in overrides.items():
            if isinstance(value, Mapping) and value:
                flat += [_with_parent(str(key), override) for override in override_list(value)]
            elif str(key).startswith("~") and value is None:
                # With "=null", Hydra would delete the key only if its value is null.
                flat.append(str(key))
            else:
                is_number = isinstance(value, str) and EXPONENT.fullmatch(value)
                flat.append(f"{key}={value if is_number else hydra_value(value)}")
        return override_list(flat)
    if not isinstance(overrides, (list, tuple)):
        raise ValueError(f"is a {type(overrides).__name__}, {overrides!r}")
    for item in overrides:
        if not isinstance(item, str) or not override_key(item) or not ("=" in item or item.startswith("~")):
            raise ValueError(f"{item!r} is not key=value")
    return list(overrides)


def _with_parent(key: str, override: str) -> str:
    """The override with `key` before its key. The prefix (+, ++, ~) of the override, or else of `key`, comes first."""
    bare, bare_key = override.lstrip("+~"), key.lstrip("+~")
    prefix = override[: len(override) - len(bare)] or key[: len(key) - len(bare_key)]
    return f"{prefix}{bare_key}.{bare}"


def merge_overrides(defaults: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """The defaults followed by the user's overrides, which replace defaults with the same key."""
    keys = {override_key(override) for override in overrides}
    return [override for override in defaults if override_key(override) not in keys] + list(overrides)
