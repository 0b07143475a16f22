# SPDX-License-Identifier: Apache-2.0
"""Limits on the size and depth of a JobSpec from a file, a playbook or the registry."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from ..common.findings import Finding

# A JobSpec of several hundred overrides has 1,000 values and 50 KiB. Mappings and lists count as values.
MAX_DEPTH = 32
MAX_VALUES = 10_000
MAX_CHARS = 1 << 20
# Python writes no longer ones as text.
MAX_BITS = 1024
# Characters that are not text, or change what a terminal shows. Line feeds and tabs are allowed.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
SHORTER = "move data and code to files under the shared root"


def limit_findings(jobspec: Any) -> list[Finding]:
    """The first reason why a JobSpec is too large to be read, or not plain data.

    Otherwise all numbers that JSON, the format of archives, does not have.
    """
    # Not recursive, because only this check ensures that recursion is safe elsewhere.
    waiting: list[tuple[str, Any, int]] = [("", jobspec, 1)]
    values = characters = 0
    infinite = []
    while waiting:
        key, value, depth = waiting.pop()
        # Values still in the list count as well; otherwise a list of lists would be read in full.
        values += 1
        if values + len(waiting) > MAX_VALUES:
            return [_finding("", f"has more than {MAX_VALUES:,} values", SHORTER)]
        if isinstance(value, (Mapping, list, tuple)):
            if depth > MAX_DEPTH:
                return [_finding(key, f"is nested more than {MAX_DEPTH} levels deep", "write it with less nesting")]
            parts = value.items() if isinstance(value, Mapping) else enumerate(value)
            waiting += [(_below(key, name), part, depth + 1) for name, part in parts]
            # The keys of a mapping are parts as well.
            names = [name for name in value if isinstance(name, str)] if isinstance(value, Mapping) else []
            waiting += [(_below(key, name), name, depth + 1) for name in names]
        elif isinstance(value, str):
            characters += len(value)
            if characters > MAX_CHARS:
                return [_finding("", f"has more than {MAX_CHARS:,} characters", SHORTER)]
            if match := CONTROL.search(value):
                return [_finding(key, f"contains the control character U+{ord(match[0]):04X}", "remove it")]
        elif isinstance(value, float) and not math.isfinite(value):
            remedy = "give a finite number; in a list of overrides, inf works as text: key=inf"
            infinite.append(_finding(key, f"is {value}", remedy))
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            return [_finding(key, "is too long for a number", "quote it if it is text")]
        elif value is not None and not isinstance(value, (bool, int, float, date)):
            return [_finding(key, f"is a {type(value).__name__}", "give text, a number, a list or a mapping")]
    return infinite


def _below(key: str, name: Any) -> str:
    return f"{key}.{CONTROL.sub('?', str(name))}"[-200:].removeprefix(".")


def _finding(key: str, problem: str, remedy: str) -> Finding:
    return Finding(key or "jobspec", problem, remedy, key=key)
