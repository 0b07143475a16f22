# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the role staging: what its tasks registered, in the one form that people and tests read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.staging.listing import UNFINISHED, UNKNOWN, superfluous
from ansible_collections.argus.verl.plugins.module_utils.staging.options import EXISTS, REFUSED, STAGED
from ansible_collections.argus.verl.plugins.module_utils.staging.snapshots import KIND, SNAPSHOTS
from ansible_collections.argus.verl.plugins.module_utils.text import size_text


def staging_results(
    shared_root: str,
    models: Mapping[str, Any],
    datasets: Mapping[str, Any],
    snapshots: Mapping[str, Any],
    user_code: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """What became of all that was declared: kind, name, status, path as nodes see it, and findings.

    models, datasets, snapshots: the results of their modules in a loop. A snapshot's path is that of the machine, which
    jobs cannot use. user_code: of copy in a loop; in check mode they have hardly more than "item" and "changed".
    """
    found = []
    for kind, results in (("model", models), ("dataset", datasets), (KIND, snapshots)):
        for result in results["results"]:
            item = result["item"]
            names = (said.get(key) for said in (result, item) for key in ("name", "code_id", "source"))
            name = next(str(name) for name in names if name)
            path = str(result.get("path", "-"))
            if kind == KIND and "status" in result:
                path = str(PurePosixPath(shared_root, SNAPSHOTS, name))
            found.append(
                {
                    "kind": kind,
                    "name": name,
                    "status": result.get("status", REFUSED),
                    "path": path,
                    "findings": of_result(f"{kind} {name}", result),
                }
            )
    for result in user_code["results"]:
        path = str(PurePosixPath(shared_root, "user", "code", PurePosixPath(result["item"]).name))
        # copy says something only of what it could not do.
        problem = result.get("msg")
        status = REFUSED if problem else STAGED if result["changed"] else EXISTS
        entry = {"kind": "user_code", "name": PurePosixPath(path).name, "status": status, "path": path}
        what, todo = " ".join(str(problem).split()), "give the path of a file on this controller"
        if result.get("unreachable"):
            # Ansible's own words are many, and do not say that.
            what, todo = "the head's node cannot be reached", "cluster_up.yml brings the cluster up"
        wrong = [Finding(result["item"], what, todo).as_dict()] if problem else []
        found.append({**entry, "findings": wrong})
    return found


def of_result(where: str, result: Mapping[str, Any]) -> list[dict[str, str]]:
    """What a module has to say of what it staged, or why it did not."""
    if "status" not in result:
        # What is no error of ours, such as a module that ended without a word, has a message only.
        known = result.get("finding") or {"what": str(result.get("msg")), "todo": "see -vvv"}
        at = known.get("where", "")
        return [Finding(where, f"{at}: {known['what']}" if at else known["what"], known["todo"]).as_dict()]
    return [Finding(where, note, "", WARNING).as_dict() for note in result.get("notes", [])]


def rows(entries: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[list[Any]]:
    """The rows of a table with these columns."""
    return [[entry[column] for column in columns] for entry in entries]


def staged_rows(staged: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """What there is, for a table: kind, name, size, when, source, jobs that use it."""
    return [
        [
            each["kind"],
            each["name"],
            None if each["bytes"] is None else size_text(each["bytes"]),
            each["staged_at"],
            " ".join(str(each[part]) for part in ("source", "commit") if each.get(part)) or None,
            ", ".join(each["used_by"]) or None,
        ]
        for each in staged
    ]


def staged_findings(staged: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What is wrong with what there is. What somebody has put there by hand is only worth knowing."""
    found = []
    for each in staged:
        for problem in each["problems"]:
            if each["kind"] == UNKNOWN:
                todo = "nothing, if you have put it there; nobody can say whether it is whole"
                found.append(Finding(each["name"], problem, todo, WARNING).as_dict())
            elif each["kind"] == UNFINISHED:
                todo = "stage it again, which goes on or removes that; or remove it"
                found.append(Finding(each["path"], problem, todo, WARNING).as_dict())
            else:
                todo = "stage.yml -e staging_repair=true puts it back; move away what was added"
                found.append(Finding(each["path"], problem, todo).as_dict())
    return found


def superfluous_snapshots(
    staged: Iterable[Mapping[str, Any]],
    keep: int | str,
    days: float | str,
    declared: Iterable[Mapping[str, Any]] = (),
) -> dict[str, list[Any]]:
    """Snapshots that can go, as `go`, and the rows of a table of all, as `rows`. Numbers may be text: -e gives that.

    declared: what the inventory has; it would only be made again.
    """
    staged = list(staged)
    go, stay = superfluous(staged, datetime.now(UTC), int(keep), float(days), declared)
    names = [each["name"] for each in go]
    verdicts = {**dict.fromkeys(names, "goes"), **stay}
    table = [
        [each["name"], each["staged_at"], size_text(each["bytes"]), verdicts[each["name"]]]
        for each in staged
        if each["name"] in verdicts
    ]
    return {"go": names, "rows": table}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "rows": rows,
            "staged_findings": staged_findings,
            "staged_rows": staged_rows,
            "staging_results": staging_results,
            "superfluous_snapshots": superfluous_snapshots,
        }
