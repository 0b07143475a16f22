# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of staging or removing something, and what is returned of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .manifest import Manifest

# What is returned of a manifest that has it.
FACTS = ("commit", "bytes", "source", "rows", "report", "verl_version")


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


def item_name(item: object) -> str:
    """How an item is named for people, whatever is wrong with it; or ""."""
    options = item if isinstance(item, Mapping) else {"name": item}
    return next((str(options[key]) for key in ("name", "code_id", "source") if options.get(key)), "")


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


def as_json(staged: Staged, manifest: Manifest | None) -> dict[str, Any]:
    """A result as JSON. diff: what existed before and exists now, as Ansible shows it."""
    new, gone = (Status.STAGED, Status.ABSENT), (Status.REMOVED, Status.ABSENT)
    line = f"{staged.kind} {staged.path}\n"
    return {
        "name": staged.name,
        "changed": staged.changed,
        "path": staged.path,
        "status": staged.status.value,
        "notes": list(staged.notes),
        "diff": [{"before": "" if staged.status in new else line, "after": "" if staged.status in gone else line}],
        **(manifest.select(FACTS) if manifest else {}),
    }
