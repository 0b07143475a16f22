# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text for people: tables, durations, sizes, and hints for misspelt names."""

from __future__ import annotations

import difflib
import functools
import itertools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None = None) -> str:
    """Left-aligned columns, two spaces apart. None becomes "-".

    width: the maximum width of a column in characters; longer cells are wrapped.
    """
    cells = [list(map(str.upper, header)), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    if width:
        cells = [line for row in cells for line in wrapped(row, width)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def wrapped(row: Sequence[str], width: int) -> list[list[str]]:
    """The lines of a row with its cells wrapped at spaces. Paths and commands are never broken."""
    wrap = functools.partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    cells = [[part for line in cell.splitlines() for part in wrap(line)] or [""] for cell in row]
    return [list(line) for line in itertools.zip_longest(*cells, fillvalue="")]


def duration(seconds: float) -> str:
    """``1:05``, or ``2:01:05`` from one hour on."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def size_text(size: float) -> str:
    """A size in bytes as text: ``12 MiB``, ``1.5 GiB``, ``2.1 TiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB" if size < 1024 else f"{size / 1024:.1f} TiB"


def one_line(text: object, limit: int | None = None) -> str:
    """Text with all white space folded into single blanks, without a full stop at its end."""
    return " ".join(str(text).split()).rstrip(".")[:limit]


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: ``did you mean "x"?``, or nothing if no known name is similar."""
    # Case is the most common difference, and difflib would count it as one.
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f'did you mean "{by_lower[near[0]]}"?' if near else ""
