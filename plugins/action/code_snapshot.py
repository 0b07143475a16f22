# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.code_snapshot`: the machine describes the source, and the program of jobs writes the snapshot.

Documented in plugins/modules/code_snapshot.py. The files of the source are only fetched if the snapshot does not exist.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import Verify
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.result import Status
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import (
    NODE,
    Answer,
    Node,
    ProgramError,
    call,
    execute,
    given_node,
    new_file,
)

ARGUMENTS = {
    "node": {"type": "dict", "options": NODE},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "source": {"type": "str"},
    "code_id": {"type": "str", "default": ""},
    "overlays": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"path": {"type": "str", "required": True}, "to": {"type": "str", "required": True}},
    },
    "git_token": {"type": "str", "no_log": True},
    "ssh_key": {"type": "str", "no_log": False},
    "repair": {"type": "bool", "default": False},
    "verify": {"type": "str", "choices": [Verify.QUICK.value, Verify.FULL.value], "default": Verify.QUICK.value},
}
# Of the slowest file system.
STAGE_SECONDS = 3600


class ItemError(Exception):
    """The item is refused; the result of the task says why."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        super().__init__(result.get("msg"))
        self.result = {**result, "failed": True, "changed": False}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        required = [("state", "present", ["source"]), ("state", "absent", ["code_id"])]
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS, required_if=required)
        node = given_node(arguments.pop("node"), task_vars)
        request = {name: arguments[name] for name in ("state", "code_id", "repair", "verify")}
        request["check"] = bool(self._task.check_mode)
        try:
            if request["state"] == "absent":
                return self.answer(node, request)
            return self.stage(node, request, arguments, task_vars)
        except ItemError as error:
            return error.result
        except (ProgramError, AnsibleConnectionFailure) as error:
            # Not "unreachable", after which Ansible would run nothing more for this host: other items are staged.
            return ItemError(refusal(Finding("", f"{error}.", "cluster_up.yml brings the cluster up"))).result

    def stage(
        self,
        node: Node,
        request: Mapping[str, Any],
        arguments: Mapping[str, Any],
        variables: dict[str, Any] | None,
    ) -> dict[str, Any]:
        source = {name: arguments[name] for name in ("source", "git_token", "ssh_key")}
        source |= {"shared_root_source": node.shared_root_source or node.shared_root}
        source |= {"overlays": [overlay["path"] for overlay in arguments["overlays"]]}
        destinations = ["", *(overlay["to"] for overlay in arguments["overlays"])]
        parts = self.describe(source, destinations, variables)
        result = self.answer(node, {**request, "parts": parts})
        is_complete = request["check"] or result["status"] == Status.EXISTS
        if is_complete or all(part["place"] != "machine" for part in parts):
            return result
        archive = new_file(self, node)
        try:
            packed = self.describe({**source, "archive": archive}, destinations, variables)
            if identities(packed) != identities(parts):
                what = "changed while it was copied."
                raise ItemError(refusal(Finding(source["source"], what, "Stage it again when nothing writes to it.")))
            return self.answer(node, {**request, "parts": packed, "attached": True}, [archive])
        finally:
            execute(self, f"rm -f {shlex.quote(archive)}")

    def describe(
        self, source: Mapping[str, Any], destinations: Sequence[str], variables: dict[str, Any] | None
    ) -> list[dict[str, Any]]:
        """The source and the overlays as the machine sees them."""
        described = self._execute_module("argus.verl.source_tree", dict(source), task_vars=variables)
        if described.get("failed") or "parts" not in described:
            described.pop("invocation", None)
            raise ItemError(described)
        return [{**part, "to": to} for part, to in zip(described["parts"], destinations, strict=True)]

    def answer(self, node: Node, request: Mapping[str, Any], attachments: Sequence[str] = ()) -> dict[str, Any]:
        reply: Answer = call(self, node, "snapshot", request, STAGE_SECONDS, attachments=attachments)
        if not reply.done:
            raise ItemError(refusal(reply.findings[0]))
        return {**reply.result, "changed": reply.changed}


def identities(parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [part.get("identity") for part in parts]


def refusal(finding: Finding) -> dict[str, Any]:
    shown = {name: printable(text) for name, text in finding.as_dict().items()}
    where = f"{shown['where']}: " if shown["where"] else ""
    return {"msg": f"{where}{shown['what']} {shown['todo']}", "finding": shown}
