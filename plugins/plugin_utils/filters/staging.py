# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the role staging: results of its tasks as one list, and rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
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
    models: TaskResult, datasets: TaskResult, snapshots: TaskResult, user_code: TaskResult
) -> list[dict[str, Any]]:
    """The results for everything that was declared: kind, name, status, path as nodes see it, and findings.

    Each is the results of its module in a loop.
    """
    kinds = (("model", models), ("dataset", datasets), (SNAPSHOT, snapshots), ("user_code", user_code))
    found = [module_declared(kind, result) for kind, results in kinds for result in results["results"]]
    return [each.as_dict() for each in found]


def module_declared(kind: str, result: TaskResult) -> Declared:
    # An item of user code is a path.
    item = result["item"] if isinstance(result["item"], dict) else {"name": result["item"]}
    names = (values.get(key) for values in (result, item) for key in ("name", "code_id", "source"))
    name = next(str(name) for name in names if name)
    path, status = str(result.get("path", "-")), result.get("status", Status.REFUSED.value)
    return Declared(kind, name, status, path, result_findings(f"{kind} {name}", result))


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


FILTERS = {
    "rows": rows,
    "staging_results": staging_results,
}
