# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a machine for the checks: programs with a time limit, and files below one root."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..cluster.programs import run_program
from .expectation import Expectation

# A file of /proc or /sys is never longer; kernel logs and lists of processes come from programs.
LONGEST = 1 << 20


class Output(NamedTuple):
    """What a program printed. The code is 127 for a program that does not exist, 124 for one that did not end."""

    code: int
    out: str
    err: str


Run = Callable[[Sequence[str], float], "tuple[int, str, str]"]


# How long before the end of a topic's time its last program is stopped, so that the topic can still say the rest.
SPARE_SECONDS = 1.0


class Reader:
    """run starts a program with a time limit; root is the directory that holds /proc, /sys, /dev and all paths.

    seconds: how long the whole topic may take. Its programs share that time.
    """

    def __init__(
        self,
        run: Run = run_program,
        root: str | Path = "/",
        expected: Expectation = Expectation(),  # noqa: B008 - it is frozen
        seconds: float = 10.0,
    ) -> None:
        self._run = run
        self.root = Path(root)
        self.expected = expected
        self._deadline = time.monotonic() + seconds - SPARE_SECONDS

    def run(self, *argv: str, seconds: float = 3600.0) -> Output:
        """Run a program; seconds is a limit of its own, below that of the topic."""
        return Output(*self._run(argv, max(0.1, min(seconds, self._deadline - time.monotonic()))))

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def text(self, path: str | Path) -> str:
        """The stripped text of a file; nothing if it cannot be read, as parts of sysfs cannot."""
        try:
            with (self.at(path) if isinstance(path, str) else path).open("rb") as file:
                return file.read(LONGEST).decode(errors="replace").strip()
        except (OSError, ValueError):
            return ""

    def paths(self, pattern: str) -> list[Path]:
        """The paths that match a pattern such as "/sys/class/drm/card*", sorted."""
        try:
            return sorted(self.root.glob(pattern.lstrip("/")))
        except OSError:
            return []
