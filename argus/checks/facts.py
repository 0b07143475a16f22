# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What checks learn about a job, besides its problems."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Facts:
    """Numbers that the checks of a job fill in, one after the other. None: unknown.

    data_sources: of the rows that were read.
    versions: of the packages that verl requires; None for a package that is not installed.
    checkpoint_bytes: the size of one checkpoint.
    checkpoints_kept, checkpoint_space: the checkpoints that exist at the same time, and their size.
    seconds: the duration of each check.
    workers: the names of those that are alive.
    notes: what is worth a line for people although it is no problem.
    """

    train_rows: int | None = None
    val_rows: int | None = None
    data_sources: list[str] | None = None
    model_bytes: int | None = None
    parameters: int | None = None
    critic_parameters: int | None = None
    versions: dict[str, str | None] | None = None
    workers: list[str] | None = None
    free_bytes: int | None = None
    steps: int | None = None
    checkpoint_bytes: int | None = None
    checkpoints_kept: int | None = None
    checkpoint_space: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def to_json(self) -> dict[str, Any]:
        """All facts that are known."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value != {} and (value or name != "notes")
        }
