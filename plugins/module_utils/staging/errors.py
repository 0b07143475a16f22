# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories under the shared root that are made once: whole or not at all, each with its manifest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..findings import Finding


class StagingError(Exception):
    """Says where something is wrong, what it is, and what to do about it."""

    def __init__(self, where: object, what: str, todo: str) -> None:
        super().__init__(f"{where}: {what} {todo}")
        self.finding = Finding(str(where), what, todo)


def refusal(error: Exception) -> dict[str, Any]:
    """What a module fails with: the message, and what is wrong, where, and what to do as a finding."""
    finding = error.finding if isinstance(error, StagingError) else Finding("staging", str(error), "see the message")
    return {"msg": str(error), "finding": finding.as_dict()}


@contextlib.contextmanager
def reported(target: Path, what: str) -> Iterator[None]:
    """Errors of the file system say where and what to do."""
    try:
        yield
    except OSError as error:
        todo = f"See that user id {os.geteuid()} may write there, and that its file system has room and locks."
        raise StagingError(target, f"cannot be {what}: {error}.", todo) from error
