# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of staging, each with its problem, its place and what to do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..common.findings import Finding

# So many files are named in a message.
LISTED_NAMES = 20


class StagingError(Exception):
    """A problem, its place, and what to do about it."""

    def __init__(self, where: object, what: str, todo: str) -> None:
        super().__init__(f"{where}: {what} {todo}")
        self.finding = Finding(str(where), what, todo)


@contextlib.contextmanager
def reported(target: Path, what: str) -> Iterator[None]:
    """Turns errors of the file system into a StagingError for the target; `what` is a participle, such as "staged"."""
    try:
        yield
    except OSError as error:
        todo = f"Check that user id {os.geteuid()} may write there, and that the file system has space and locks."
        raise StagingError(target, f"cannot be {what}: {error}.", todo) from error


def first(items: Iterable[str]) -> list[str]:
    """The items; only the first ones and the number of the others if there are many."""
    items = list(items)
    return [*items[:LISTED_NAMES], *([f"and {len(items) - LISTED_NAMES} more"] if len(items) > LISTED_NAMES else [])]


def listed(items: Iterable[str]) -> str:
    """The same as text."""
    return ", ".join(first(items))


def changed_meanwhile(source: object) -> StagingError:
    return StagingError(source, "changed while it was copied.", "Stage it again when nothing writes to it.")
