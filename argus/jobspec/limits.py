# SPDX-License-Identifier: Apache-2.0
"""Limits on the size and the depth of a JobSpec, which may come from a file, a playbook or the registry."""

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
# Of an integer. Python refuses to write very long ones as text.
MAX_BITS = 1024
# Characters that are not text, or change what a terminal shows. Line feeds and tabs are allowed.
CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
SHORTER_REMEDY = "move data and code to files under the shared root"


def limit_findings(jobspec: Any) -> list[Finding]:
    """The first reason why a JobSpec is too large, or is not plain data; otherwise all numbers that JSON lacks.

    JSON is the format of archives.
    """
    # Not recursive, because only this check ensures that recursion is safe elsewhere.
    pending: list[tuple[str, Any, int]] = [("", jobspec, 1)]
    values = characters = 0
    infinite = []
    while pending:
        key, value, depth = pending.pop()
        # Pending values count as well; otherwise a list of lists would be read in full.
        values += 1
        if values + len(pending) > MAX_VALUES:
            return [_finding("", f"has more than {MAX_VALUES:,} values", SHORTER_REMEDY)]
        if isinstance(value, (Mapping, list, tuple)):
            if depth > MAX_DEPTH:
                return [_finding(key, f"is nested more than {MAX_DEPTH} levels deep", "write it with less nesting")]
            parts = value.items() if isinstance(value, Mapping) else enumerate(value)
            pending += [(_nested_key(key, name), part, depth + 1) for name, part in parts]
            # The keys of a mapping are parts as well.
            names = [name for name in value if isinstance(name, str)] if isinstance(value, Mapping) else []
            pending += [(_nested_key(key, name), name, depth + 1) for name in names]
        elif isinstance(value, str):
            characters += len(value)
            if characters > MAX_CHARS:
                return [_finding("", f"has more than {MAX_CHARS:,} characters", SHORTER_REMEDY)]
            if match := CONTROL_CHARACTER.search(value):
                return [_finding(key, f"contains the control character U+{ord(match[0]):04X}", "remove it")]
        elif isinstance(value, float) and not math.isfinite(value):
            remedy = "give a finite number; in a list of overrides, inf works as text: key=inf"
            infinite.append(_finding(key, f"is {value}", remedy))
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            return [_finding(key, "is too long for a number", "quote it if it is text")]
        elif value is not None and not isinstance(value, (bool, int, float, date)):
            return [_finding(key, f"is a {type(value).__name__}", "give text, a number, a list or a mapping")]
    return infinite


def _nested_key(key: str, name: Any) -> str:
    return f"{key}.{CONTROL_CHARACTER.sub('?', str(name))}"[-200:].removeprefix(".")


def _finding(key: str, problem: str, remedy: str) -> Finding:
    return Finding(key or "jobspec", problem, remedy, key=key)
