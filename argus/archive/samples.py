# SPDX-License-Identifier: Apache-2.0
"""Keeps samples of a job's rollouts and validations: some rows of some steps.

verl writes all rows of a step to ``samples/.<kind>/<step>.jsonl``. What stays is in ``samples/<kind>-<step>.jsonl``.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import random
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..io.reading import MIB, list_directory, open_file
from ..io.schema import MAX_INTEGER
from .archive import Archive

DIRECTORY = "samples"
KINDS = ("rollouts", "validation")
RAW_FILE = re.compile(r"([0-9]{1,9})\.jsonl")
KEPT_FILE = re.compile(r"([a-z]+)-([0-9]{1,9})\.jsonl")
# The most steps of each kind that stay, evenly distributed; the last one may be one more.
MAX_STEPS = 50
# How many rows of a step stay: with the highest scores, with the lowest, and random ones.
BEST_COUNT, WORST_COUNT, RANDOM_COUNT = 4, 4, 8
MAX_CHARS = 4000
# The most bytes read of a step, of a row, and of the kept rows.
MAX_STEP_BYTES, MAX_LINE_BYTES, MAX_KEPT_BYTES = 256 * MIB, 4 * MIB, 2 * MIB
Mask = Callable[[str], str]


def raw_directory(archive: str, kind: str) -> str:
    """The directory in which verl writes all rows. archive: its path; kind: one of KINDS."""
    return f"{archive}/{DIRECTORY}/.{kind}"


def keep(archive: Archive, mask: Mask, is_over: bool = False) -> None:
    """Keep samples of the steps that verl has written, and remove the rest.

    mask: replaces secrets. is_over: whether nothing writes any more; before, the newest file may be incomplete.
    Raises OSError and UnreadableError.
    """
    if not is_directory(archive.path / DIRECTORY):
        return
    kept = kept_steps(archive)
    for kind in KINDS:
        raw = Path(raw_directory(str(archive.path), kind))
        if not is_directory(raw):
            continue
        written = sorted(int(match[1]) for match in map(RAW_FILE.fullmatch, list_directory(raw)) if match)
        complete = written if is_over else written[:-1]
        chosen = select_steps({*kept[kind], *complete})
        for step in complete:
            file = raw / f"{step}.jsonl"
            if step in chosen:
                lines = "".join(json.dumps(row) + "\n" for row in select_rows(file, step, mask))
                archive.write_text(f"{DIRECTORY}/{kind}-{step}.jsonl", lines, durable=False)
            file.unlink(missing_ok=True)
        for step in {*kept[kind]} - chosen:
            (archive.path / DIRECTORY / f"{kind}-{step}.jsonl").unlink(missing_ok=True)
        if is_over:
            with contextlib.suppress(OSError):
                raw.rmdir()


def is_directory(path: Path) -> bool:
    """Whether a path is a directory, and not a link to one."""
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(os.lstat(path).st_mode)
    return False


def kept_steps(archive: Archive) -> dict[str, list[int]]:
    """The steps of which samples are kept, in ascending order, by kind. Raises UnreadableError."""
    steps_by_kind: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for match in map(KEPT_FILE.fullmatch, list_directory(archive.path / DIRECTORY)):
        if match and match[1] in steps_by_kind:
            steps_by_kind[match[1]].append(int(match[2]))
    return {kind: sorted(steps) for kind, steps in steps_by_kind.items()}


def select_steps(steps: set[int], max_steps: int = MAX_STEPS) -> set[int]:
    """The first step, the last one, and those between them at equal distances, a power of two."""
    if not steps:
        return set()
    first, last, width = min(steps), max(steps), 1
    while (last - first) // width >= max_steps:
        width *= 2
    return {step for step in steps if (step - first) % width == 0 or step == last}


def select_rows(path: Path, step: int, mask: Mask) -> list[dict[str, Any]]:
    """The rows of a step that stay, the best first. At most one other row is in memory at a time."""
    best: list[tuple[float, int, dict[str, Any]]] = []
    worst: list[tuple[float, int, dict[str, Any]]] = []
    others: list[tuple[float, int, dict[str, Any]]] = []
    chance = random.Random(step)  # noqa: S311
    with open_file(path) as file:
        for number, row in enumerate(read_rows(file)):
            value = score_of(row) or 0.0
            heaps = ((best, value, BEST_COUNT), (worst, -value, WORST_COUNT), (others, chance.random(), RANDOM_COUNT))
            for heap, key, size in heaps:
                item = (key, -number, row)
                if len(heap) < size:
                    heapq.heappush(heap, item)
                else:
                    heapq.heappushpop(heap, item)
    chosen = {-number: row for _key, number, row in (*best, *worst, *others)}
    return sorted((kept_fields(row, mask) for row in chosen.values()), key=lambda row: -(row["score"] or 0.0))


def read_rows(file: BinaryIO, max_bytes: int = MAX_STEP_BYTES) -> Iterator[dict[str, Any]]:
    is_start = True
    while max_bytes > 0 and (line := file.readline(min(max_bytes, MAX_LINE_BYTES))):
        max_bytes -= len(line)
        # The rest of a line that was too long is skipped.
        if is_start:
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict):
                    yield row
        is_start = line.endswith(b"\n")


def kept_fields(row: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """The fields of a row that stay: the score, the prompt, the answer and the ground truth (`gts`)."""
    return {"score": score_of(row), **{key: elide(mask(text_of(row.get(key)))) for key in ("input", "output", "gts")}}


def score_of(row: dict[str, Any]) -> float | None:
    score = row.get("score")
    # Infinity and NaN have no place among scores.
    return float(score) if isinstance(score, (int, float)) and -MAX_INTEGER <= score <= MAX_INTEGER else None


def text_of(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def elide(text: str) -> str:
    """A text without its middle, if it is longer than MAX_CHARS: the answer is at the end."""
    half = MAX_CHARS // 2
    return text if len(text) <= MAX_CHARS else f"{text[:half]}\n[…{len(text) - 2 * half} characters…]\n{text[-half:]}"


def read(archive: Archive, kind: str, step: int) -> Iterator[dict[str, Any]]:
    """The kept rows of a step. A job may have written other ones there. Raises UnreadableError."""
    with open_file(archive.path / DIRECTORY / f"{kind}-{step}.jsonl") as file:
        yield from itertools.islice(read_rows(file, MAX_KEPT_BYTES), BEST_COUNT + WORST_COUNT + RANDOM_COUNT)
