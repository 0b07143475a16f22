# SPDX-License-Identifier: Apache-2.0
"""The options of staging, the rules for names, and the error of staging."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ..common.findings import Finding

# Errors of staging, each with its problem, its place and what to do.

MAX_LISTED_NAMES = 20


class StagingError(Exception):
    """A problem, its place, and what to do about it."""

    def __init__(self, where: object, problem: str, remedy: str) -> None:
        super().__init__(f"{where}: {problem} {remedy}")
        self.finding = Finding(str(where), problem, remedy)


@contextlib.contextmanager
def as_staging_errors(target: Path, action: str) -> Iterator[None]:
    """Turns errors of the file system into a StagingError for the target. action: a participle, such as "staged"."""
    try:
        yield
    except OSError as error:
        remedy = f"Check that user id {os.geteuid()} may write there, and that the file system has space and locks."
        raise StagingError(target, f"cannot be {action}: {error}.", remedy) from error


def first_items(items: Iterable[str]) -> list[str]:
    """The items; only the first ones and the number of the others if there are many."""
    items = list(items)
    more = len(items) - MAX_LISTED_NAMES
    return [*items[:MAX_LISTED_NAMES], *([f"and {more} more"] if more > 0 else [])]


def join_items(items: Iterable[str]) -> str:
    """The items of `first_items` as text."""
    return ", ".join(first_items(items))


def changed_meanwhile(source: object) -> StagingError:
    return StagingError(source, "changed while it was copied.", "Stage it again when nothing writes to it.")


# How something is staged, and the names that it may have.

# The same as a submission id, in lower case: the name of a dataset becomes part of paths, tags and commands.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# Models and code ids come with capitals (Qwen2.5-0.5B-Instruct).
NAME_WITH_CAPITALS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Verify(StrEnum):
    """How files are compared with their manifest."""

    NO = "no"
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class StageOptions:
    """How something is staged.

    check: only return what would be done. repair: restore files that no longer fit the manifest; without it they are
    an error that names them. full: verify the content even of files that look unchanged. endpoint, token: of the hub.
    """

    check: bool = False
    repair: bool = False
    full: bool = False
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)


def check_name(kind: str, name: str, allowed: re.Pattern[str] = NAME) -> str:
    """The name itself if it can be a directory under the shared root; otherwise an error."""
    if not allowed.fullmatch(name):
        raise StagingError(kind, f'the name "{name}" is not allowed.', f"Choose one that matches {allowed.pattern}")
    return name


def check_shared_root(shared_root: Path) -> Path:
    """The shared root itself if it exists; otherwise an error.

    It is never created: where it is missing it is not mounted, and a local disk would fill up.
    """
    if not shared_root.is_dir():
        remedy = "Mount or create it first, or correct its path."
        raise StagingError(f'shared_root "{shared_root}"', "is not a directory here.", remedy)
    return shared_root
