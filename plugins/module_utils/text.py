# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text for people: tables, durations, sizes, and the nearest of known names."""

from __future__ import annotations

import difflib
import functools
import itertools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None = None) -> str:
    """Columns aligned to the left, two spaces apart; numbers and None are written as text and "-".

    width: of a column at most; a longer cell goes on below itself.
    """
    cells = [list(map(str.upper, header)), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    if width:
        cells = [line for row in cells for line in wrapped(row, width)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def wrapped(row: Sequence[str], width: int) -> list[list[str]]:
    """The lines of a row whose cells are wrapped at spaces; paths and commands stay whole, and so do lines."""
    wrap = functools.partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    cells = [[part for line in cell.splitlines() for part in wrap(line)] or [""] for cell in row]
    return [list(line) for line in itertools.zip_longest(*cells, fillvalue="")]


def duration(seconds: float) -> str:
    """``1:05``, and ``2:01:05`` from an hour on."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def size_text(size: float) -> str:
    """``12 MiB``, and ``1.5 GiB`` from a gibibyte on."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def one_line(text: object, limit: int | None = None) -> str:
    """A text with single spaces for all its white space, and without a full stop at its end."""
    line = " ".join(str(text).split()).rstrip(".")
    return line if limit is None else line[:limit]


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: ``did you mean "x"?``, or nothing when no known one is near."""
    # Case is the commonest difference, and difflib counts it as one.
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f'did you mean "{by_lower[near[0]]}"?' if near else ""
