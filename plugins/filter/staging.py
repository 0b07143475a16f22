# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the role staging: what its tasks registered, in the one form that people and tests read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.snapshots import KIND, SNAPSHOTS
from ansible_collections.argus.verl.plugins.module_utils.staging import EXISTS, STAGED, Staged


def staging_results(
    shared_root: str, assets: Mapping[str, Any], snapshots: Mapping[str, Any], user_code: Mapping[str, Any]
) -> list[dict[str, str]]:
    """What was staged: kind, name, path as nodes see it, and status.

    assets: the result of tiny_assets, or of a task that was skipped.
    snapshots: the results of code_snapshot in a loop. Their paths are those of the machine, which jobs cannot use.
    user_code: the results of copy in a loop; in check mode they have hardly more than "item" and "changed".
    """
    found = list(assets.get("results", []))
    for result in snapshots["results"]:
        path = PurePosixPath(shared_root, SNAPSHOTS, result["code_id"])
        found.append(Staged(KIND, result["code_id"], str(path), result["status"]).as_dict())
    for result in user_code["results"]:
        path = PurePosixPath(shared_root, "user", "code", PurePosixPath(result["item"]).name)
        found.append(Staged("user_code", path.name, str(path), STAGED if result["changed"] else EXISTS).as_dict())
    return found


def rows(entries: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[list[Any]]:
    """The rows of a table with these columns."""
    return [[entry[column] for column in columns] for entry in entries]


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rows": rows, "staging_results": staging_results}
