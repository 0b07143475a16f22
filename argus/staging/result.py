# SPDX-License-Identifier: Apache-2.0
"""The result of staging or removing an item, also as the JSON that Ansible shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .manifest import Manifest

# The facts of a manifest that belong to a result.
RETURNED_FACTS = ("commit", "bytes", "source", "rows", "report", "verl_version")


class Status(StrEnum):
    """What was done to an item; in check mode, what would be done."""

    STAGED = "staged"
    EXISTS = "exists"
    REPAIRED = "repaired"
    REMOVED = "removed"
    # There was nothing to remove.
    ABSENT = "absent"
    # Not done, because it may take long and the caller did not want to wait.
    DEFERRED = "deferred"
    # Not done, because of an error.
    REFUSED = "refused"


def item_name(item: object) -> str:
    """The name of an item from an inventory, for messages, even if the item is malformed; "" if it has none."""
    options = item if isinstance(item, Mapping) else {"name": item}
    return next((str(options[key]) for key in ("name", "code_id", "source") if options.get(key)), "")


@dataclass(frozen=True)
class StageResult:
    """What was done to one item under the shared root."""

    # Of the item, for example "model".
    kind: str
    name: str
    path: str
    status: Status
    notes: tuple[str, ...] = ()  # the files that were repaired, each with its problem

    @property
    def changed(self) -> bool:
        return self.status in (Status.STAGED, Status.REPAIRED, Status.REMOVED)


def result_as_json(result: StageResult, manifest: Manifest | None) -> dict[str, Any]:
    """The result for Ansible, with a diff of what existed before and exists now. manifest: of an item that exists."""
    absent_before, absent_after = (Status.STAGED, Status.ABSENT), (Status.REMOVED, Status.ABSENT)
    line = f"{result.kind} {result.path}\n"
    before = "" if result.status in absent_before else line
    after = "" if result.status in absent_after else line
    return {
        "name": result.name,
        "changed": result.changed,
        "path": result.path,
        "status": result.status.value,
        "notes": list(result.notes),
        "diff": [{"before": before, "after": after}],
        **(manifest.select(RETURNED_FACTS) if manifest else {}),
    }
