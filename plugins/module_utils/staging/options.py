# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories under the shared root that are made once: whole or not at all, each with its manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import StagingError

STAGED, EXISTS, REPAIRED, REMOVED, ABSENT = "staged", "exists", "repaired", "removed", "absent"
# Not made, because it may take long and that was not wanted; not made, because something is wrong.
DEFERRED, REFUSED = "deferred", "refused"
# In lower case, the form of a submission id: a name of a dataset ends up in paths, tags and commands.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# Models and code ids come with capitals (Qwen2.5-0.5B-Instruct).
NAME_WITH_CAPITALS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# What all modules that stage something take.
OPTIONS: dict[str, dict[str, Any]] = {
    "shared_root": {"type": "path", "default": "/private"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "repair": {"type": "bool", "default": False},
    "verify": {"type": "str", "choices": ["quick", "full"], "default": "quick"},
    "defer": {"type": "bool", "default": False},
}


@dataclass(frozen=True)
class Staged:
    """One thing under the shared root, and what became of it.

    kind: what it is, for example "model".
    status: "staged" when it was made now, "repaired" when files of it were put right, "removed" when it was removed
        (each: or would be, in check mode), "exists" or "absent" when nothing was to be done.
    """

    kind: str
    name: str
    path: str
    status: str
    # What was repaired or is worth knowing, a line each.
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.status in (STAGED, REPAIRED, REMOVED)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "notes": list(self.notes)}


def how(given: Mapping[str, Any], *, check: bool) -> dict[str, bool]:
    """The options that all modules have, as stage takes them."""
    return {"check": check, "repair": given["repair"], "full": given["verify"] == "full", "defer": given["defer"]}


def outcome(staged: Staged, manifest: Mapping[str, Any] | None, details: Sequence[str]) -> dict[str, Any]:
    """What all modules return, but for the name; and those details of the manifest that it has."""
    return {
        "changed": staged.changed,
        "path": staged.path,
        "status": staged.status,
        "notes": list(staged.notes),
        "diff": difference([staged]),
        **{name: manifest[name] for name in details if manifest and name in manifest},
    }


def difference(results: Iterable[Staged]) -> dict[str, str]:
    """Ansible's diff: what was there before, and what is there now."""
    results = list(results)
    return {
        "before": "".join(f"{each.kind} {each.path}\n" for each in results if each.status not in (STAGED, ABSENT)),
        "after": "".join(f"{each.kind} {each.path}\n" for each in results if each.status not in (REMOVED, ABSENT)),
    }


def check_name(kind: str, name: str, allowed: re.Pattern[str] = NAME) -> str:
    """The name itself, when it is fit to be a directory under the shared root."""
    if not allowed.fullmatch(name):
        raise StagingError(kind, f'the name "{name}" is not allowed.', f"Choose one that matches {allowed.pattern}")
    return name


def check_shared_root(shared_root: Path) -> Path:
    """The shared root itself. It is never made: where it is missing it is not mounted, and a local disk would fill."""
    if not shared_root.is_dir():
        raise StagingError(
            f'shared_root "{shared_root}"', "is no directory here.", "Mount or make it first, or correct its path."
        )
    return shared_root
