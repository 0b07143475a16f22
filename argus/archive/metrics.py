# SPDX-License-Identifier: Apache-2.0
"""Reads the metrics files of a job, ``logs/metrics-<attempt>.jsonl``: its trainer writes one line for each step.

A long job has hundreds of megabytes of them. The code of a job can write anything there: lines that are not a step are
skipped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..io.reading import MIB, is_encodable, is_integer, list_directory, open_file
from ..io.schema import MAX_INTEGER

METRICS_FILE = re.compile(r"metrics-(?P<attempt>[1-9][0-9]{0,3})\.jsonl")
# One step of PPO takes about 8 KiB.
MAX_LINE_BYTES = MIB
# How much of a file a caller reads that needs all its steps.
MAX_FILE_BYTES = 256 << 20


@dataclass(frozen=True)
class Step:
    number: int
    metrics: Mapping[str, object]

    def value(self, metric: str) -> float | None:
        """A metric as a number; None if it is missing, or no number that fits."""
        value = self.metrics.get(metric)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        # An integer may be too large for a float. A float is right as it is: a loss may be infinite or NaN.
        return float(value) if isinstance(value, float) or -MAX_INTEGER <= value <= MAX_INTEGER else None


def files(archive_dir: Path) -> list[Path]:
    """The metrics files of a job, in the order of attempts. Raises UnreadableError."""
    matches = [match for match in map(METRICS_FILE.fullmatch, list_directory(archive_dir / "logs")) if match]
    return [archive_dir / "logs" / match[0] for match in sorted(matches, key=lambda match: int(match["attempt"]))]


def parse_step(line: bytes) -> Step | None:
    """The step in a line; None for other lines, and for an incomplete one: a running or killed job may end with it."""
    if not line.endswith(b"\n") or b'"step"' not in line:
        return None
    try:
        entry = json.loads(line)
        number, data = entry["step"], entry["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not is_integer(number) or not 0 <= number <= MAX_INTEGER or not isinstance(data, dict):
        return None
    return Step(number, {name: value for name, value in data.items() if is_encodable(name)})


def read_steps(file: BinaryIO, max_bytes: int) -> Iterator[Step]:
    """The steps in the next `max_bytes` bytes of a file, without lines that are longer than MAX_LINE_BYTES."""
    is_start = True
    while max_bytes > 0 and (line := file.readline(min(max_bytes, MAX_LINE_BYTES))):
        max_bytes -= len(line)
        # The rest of a line that was too long is skipped.
        step = parse_step(line) if is_start else None
        is_start = line.endswith(b"\n")
        if step:
            yield step


def last_steps(path: Path, size: int) -> list[Step]:
    """The steps in the last `size` bytes of a file. The first line is usually incomplete."""
    with open_file(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return list(read_steps(file, size))
