# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of staging or removing something, and what a module returns of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .manifest import Manifest


class Status(StrEnum):
    """What staging or removing has done, or would do in check mode."""

    STAGED = "staged"
    EXISTS = "exists"
    REPAIRED = "repaired"
    REMOVED = "removed"
    ABSENT = "absent"
    # Not done, because it may take long and the caller did not want to wait.
    DEFERRED = "deferred"
    # Not done, because of an error.
    REFUSED = "refused"


@dataclass(frozen=True)
class Staged:
    """One thing under the shared root, and what was done.

    kind: what it is, for example "model". notes: what was repaired or deserves attention, one line each.
    """

    kind: str
    name: str
    path: str
    status: Status
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.status in (Status.STAGED, Status.REPAIRED, Status.REMOVED)


def module_result(staged: Staged, manifest: Manifest | None, details: Sequence[str]) -> dict[str, Any]:
    """What all staging modules return except the name; `details` are facts of the manifest to return if it has them."""
    return {
        "changed": staged.changed,
        "path": staged.path,
        "status": staged.status.value,
        "notes": list(staged.notes),
        "diff": difference([staged]),
        **(manifest.select(details) if manifest else {}),
    }


def difference(results: Iterable[Staged]) -> dict[str, str]:
    """Ansible's diff: what existed before, and what exists now."""
    results = list(results)
    new, gone = (Status.STAGED, Status.ABSENT), (Status.REMOVED, Status.ABSENT)
    return {
        "before": "".join(f"{each.kind} {each.path}\n" for each in results if each.status not in new),
        "after": "".join(f"{each.kind} {each.path}\n" for each in results if each.status not in gone),
    }
