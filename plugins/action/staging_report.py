# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.staging_report`: show what was staged. Documented in plugins/modules/staging_report.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.result import Status
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show
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


def declared(results: Mapping[str, TaskResult]) -> list[Declared]:
    """What was declared, from the results of modules in loops, by kind."""
    return [module_declared(kind, result) for kind, loop in results.items() for result in loop["results"]]


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


KINDS = ("model", "dataset", "snapshot", "user_code")
ARGUMENTS = {kind: {"type": "dict", "required": True} for kind in KINDS}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller, without a connection."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        items = declared(arguments)
        rows = [[item.kind, item.name, item.status, item.path] for item in items]
        findings = [finding for item in items for finding in item.findings]
        return show("Staged", ["kind", "name", "status", "path"], rows, findings)
