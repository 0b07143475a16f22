# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the role staging: results of its tasks as one list, and tables and findings of what is staged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import SNAPSHOTS
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import size_text
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.listing import (
    UNFINISHED,
    UNKNOWN,
    DeclaredSnapshot,
    Entry,
    superfluous,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.result import Status
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.snapshots import KIND as SNAPSHOT
from ansible_collections.argus.verl.plugins.plugin_utils.task_errors import unknown_key

# The result of one item of a task, as Ansible registers it.
TaskResult = Mapping[str, Any]


@dataclass(frozen=True)
class Declared:
    """Something that was declared, and the result of staging it. path: as nodes see it."""

    kind: str
    name: str
    status: str
    path: str
    findings: Sequence[Finding]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "findings": [finding.as_dict() for finding in self.findings]}


def staging_results(
    shared_root: str, models: TaskResult, datasets: TaskResult, snapshots: TaskResult, user_code: TaskResult
) -> list[dict[str, Any]]:
    """The results for everything that was declared: kind, name, status, path as nodes see it, and findings.

    Each is the results of its module in a loop.
    """
    kinds = (("model", models), ("dataset", datasets), (SNAPSHOT, snapshots), ("user_code", user_code))
    found = [module_declared(kind, result, shared_root) for kind, results in kinds for result in results["results"]]
    return [each.as_dict() for each in found]


def module_declared(kind: str, result: TaskResult, shared_root: str) -> Declared:
    # An item of user code is a path.
    item = result["item"] if isinstance(result["item"], dict) else {"name": result["item"]}
    names = (values.get(key) for values in (result, item) for key in ("name", "code_id", "source"))
    name = next(str(name) for name in names if name)
    path = str(result.get("path", "-"))
    if kind == SNAPSHOT and "status" in result:
        # The result has the path on the machine, which jobs cannot use.
        path = str(PurePosixPath(shared_root, SNAPSHOTS, name))
    return Declared(
        kind, name, result.get("status", Status.REFUSED.value), path, result_findings(f"{kind} {name}", result)
    )


def result_findings(where: str, result: TaskResult) -> list[Finding]:
    """Why a module failed, or the notes on what it staged."""
    if "status" not in result:
        # An error that is not ours, such as a crashed module, has only a message.
        message = str(result.get("msg"))
        name, hint = unknown_key(message) or ("", "")
        own = {"what": f"{name} is unknown", "todo": hint} if name else {"what": message, "todo": "see -vvv"}
        problems = result.get("findings") or [result.get("finding") or own]
        return [
            Finding(where, f"{at}: {each['what']}" if (at := each.get("where", "")) else each["what"], each["todo"])
            for each in problems
        ]
    return [Finding(where, note, "", WARNING) for note in result.get("notes", [])]


def rows(entries: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[list[Any]]:
    """The rows of a table with these columns."""
    return [[entry[column] for column in columns] for entry in entries]


def staged_rows(staged: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """The rows of a table of what is staged: kind, name, size, time, source, jobs that use it."""
    return [
        [
            entry.kind,
            entry.name,
            None if entry.bytes is None else size_text(entry.bytes),
            entry.staged_at,
            " ".join(str(entry.details[part]) for part in ("source", "commit") if entry.details.get(part)) or None,
            ", ".join(entry.used_by) or None,
        ]
        for entry in map(Entry.from_json, staged)
    ]


def staged_findings(staged: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """The problems of what is staged. A directory without a manifest is a warning: a user may have put it there."""
    found = []
    for entry in map(Entry.from_json, staged):
        for problem in entry.problems:
            if entry.kind == UNKNOWN:
                todo = "nothing, if you have put it there; without a manifest it cannot be verified"
                found.append(Finding(entry.name, problem, todo, WARNING))
            elif entry.kind == UNFINISHED:
                todo = "stage it again, which continues it or removes the leftovers; or remove it"
                found.append(Finding(entry.path, problem, todo, WARNING))
            else:
                todo = "stage.yml -e staging_repair=true restores it; move added files away"
                found.append(Finding(entry.path, problem, todo))
    return [finding.as_dict() for finding in found]


def superfluous_snapshots(
    staged: Iterable[dict[str, Any]], keep: int | str, days: float | str, declared: Iterable[dict[str, Any]] = ()
) -> dict[str, list[Any]]:
    """The snapshots that can be removed, as `go`, and the rows of a table of all snapshots, as `rows`.

    keep, days: may be text, because -e passes text. declared: what the inventory declares; it would be staged again.
    """
    entries = [Entry.from_json(each) for each in staged]
    wanted = map(DeclaredSnapshot.from_json, declared)
    found = superfluous(entries, datetime.now(UTC), int(keep), float(days), wanted)
    names = [entry.name for entry in found.snapshots]
    verdicts = {**dict.fromkeys(names, "to be removed"), **found.reasons}
    table = [
        [entry.name, entry.staged_at, size_text(entry.bytes or 0), verdicts[entry.name]]
        for entry in entries
        if entry.name in verdicts
    ]
    return {"go": names, "rows": table}


FILTERS = {
    "rows": rows,
    "staged_findings": staged_findings,
    "staged_rows": staged_rows,
    "staging_results": staging_results,
    "superfluous_snapshots": superfluous_snapshots,
}
