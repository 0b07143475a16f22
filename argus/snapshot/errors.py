# SPDX-License-Identifier: GPL-3.0-or-later
"""The error of a source."""

from __future__ import annotations


class SourceError(Exception):
    """A problem, its place, and what to do about it."""

    def __init__(self, where: object, what: str, todo: str) -> None:
        super().__init__(f"{where}: {what} {todo}")
        self.where, self.what, self.todo = str(where), what, todo
