# SPDX-License-Identifier: Apache-2.0
"""Reads values of a composed Hydra configuration, by dotted keys such as `trainer.nnodes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

OMEGACONF_MISSING = "???"


@dataclass(frozen=True)
class Configuration:
    """A composed configuration as plain data: nested mappings, lists and values."""

    values: Mapping[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key; the default if it is absent, null, OmegaConf's missing value, or unresolved."""
        value: Any = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        unset = value is None or (isinstance(value, str) and (value == OMEGACONF_MISSING or value.startswith("${")))
        return default if unset else value

    def number(self, key: str, default: int = 0) -> int:
        """The value if it is an integer; otherwise the default. Another check reports values of a wrong type."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


def flatten(node: Any, path: str = "", *, enabled_only: bool = True) -> Iterator[tuple[str, Any]]:
    """All dotted keys of a configuration with their values, those of list items as `key[0]`.

    enabled_only: skip sections in which `enable` or `enabled` is false.
    """
    if isinstance(node, Mapping) and node:
        is_disabled = node.get("enable") is False or node.get("enabled") is False
        for name, value in () if enabled_only and is_disabled else node.items():
            yield from flatten(value, f"{path}.{name}".lstrip("."), enabled_only=enabled_only)
    elif isinstance(node, list) and node:
        for index, value in enumerate(node):
            yield from flatten(value, f"{path}[{index}]", enabled_only=enabled_only)
    else:
        yield path, node


def as_list(value: Any) -> list[Any]:
    """The items of a setting that may be a list or a single value; none for None."""
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
