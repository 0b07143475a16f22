# SPDX-License-Identifier: Apache-2.0
"""What all of staging uses: the options of a run, the rules for names, and StagingError."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ..common.findings import Finding

MAX_LISTED_ITEMS = 20
# The same as a submission id, in lower case: the name of a dataset becomes part of paths, tags and commands.
LOWERCASE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# Models and code ids come with capitals (Qwen2.5-0.5B-Instruct).
NAME_WITH_CAPITALS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Verify(StrEnum):
    """How files are compared with their manifest."""

    NO = "no"
    QUICK = "quick"  # size and modification time; the content of a file only if its time has changed
    FULL = "full"  # the content of every file


@dataclass(frozen=True)
class StageOptions:
    """How an item is staged."""

    check: bool = False  # change nothing, and return what would be done
    repair: bool = False  # restore files that no longer fit the manifest; otherwise they are an error that names them
    full: bool = False  # verify also the content of files that look unchanged
    # The address of the hub, and the token for it; None for the node's address, and for no token.
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)


class StagingError(Exception):
    """Something cannot be staged: where, what the problem is, and what to do about it."""

    def __init__(self, where: object, problem: str, remedy: str) -> None:
        super().__init__(f"{where}: {problem} {remedy}")
        self.finding = Finding(str(where), problem, remedy)


@contextlib.contextmanager
def as_staging_errors(target: Path, action: str) -> Iterator[None]:
    """Turns each OSError into a StagingError for the target. action: a participle, such as "staged"."""
    try:
        yield
    except OSError as error:
        remedy = f"Check that user id {os.geteuid()} may write there, and that the file system has space and locks."
        raise StagingError(target, f"cannot be {action}: {error}.", remedy) from error


def first_items(items: Iterable[str]) -> list[str]:
    """The first MAX_LISTED_ITEMS items, and as the last one how many more there are."""
    items = list(items)
    more = len(items) - MAX_LISTED_ITEMS
    return [*items[:MAX_LISTED_ITEMS], *([f"and {more} more"] if more > 0 else [])]


def join_items(items: Iterable[str]) -> str:
    """The items of `first_items` as text."""
    return ", ".join(first_items(items))


def changed_source_error(source: object) -> StagingError:
    return StagingError(source, "changed while it was copied.", "Stage it again when nothing writes to it.")


def check_name(kind: str, name: str, allowed: re.Pattern[str] = LOWERCASE_NAME) -> str:
    """The name itself. Raises StagingError if it cannot be a directory's. kind: of the name, for the message."""
    if not allowed.fullmatch(name):
        raise StagingError(kind, f'the name "{name}" is not allowed.', f"Choose one that matches {allowed.pattern}")
    return name


def check_shared_root(shared_root: Path) -> Path:
    """The shared root itself. Raises StagingError if it does not exist.

    It is never created: where it is missing, it is not mounted, and a local disk would fill up.
    """
    if not shared_root.is_dir():
        remedy = "Mount or create it first, or correct its path."
        raise StagingError(f'shared_root "{shared_root}"', "is not a directory here.", remedy)
    return shared_root
