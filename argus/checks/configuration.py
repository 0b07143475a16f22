# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The composed Hydra configuration of a job, read by dotted keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "???"


@dataclass(frozen=True)
class Configuration:
    """A composed configuration, as plain data."""

    values: Mapping[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key. The default if there is none: the key is absent, null, missing or unresolved."""
        value: Any = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        unset = value is None or (isinstance(value, str) and (value == MISSING or value.startswith("${")))
        return default if unset else value

    def number(self, key: str, default: int = 0) -> int:
        """An integer. The default for any other value, so that rules do not apply to it."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default
