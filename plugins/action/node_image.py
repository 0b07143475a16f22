# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.node_image`: send the build context of the controller, and show how far an image has come.

Documented in plugins/modules/node_image.py.
"""

from __future__ import annotations

import tempfile
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, size_text
from ansible_collections.argus.verl.plugins.module_utils.cluster.image_builds import (
    BuildError,
    ImageBuild,
    inputs_hash,
    write_context,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import machine_name

display = Display()
DOING = {"built": "building", "pulled": "pulling", "saved": "writing to the shared root"}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the module on the machine."""

    TRANSFERS_FILES = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments, variables = dict(self._task.args), task_vars or {}
        state, image = str(arguments.get("state")), arguments.get("image")
        host = self._task.delegate_to or variables.get("inventory_hostname", "")
        machine = machine_name(host, variables["hostvars"][host]) if host in variables.get("hostvars", ()) else host
        if state in DOING and not self._task.check_mode:
            display.display(f"{image}: {DOING[state]}, on {machine}")
        try:
            if state == "built" and not self._task.check_mode:
                result = self._build(arguments, task_vars)
            else:
                result = self._execute_module(module_args=arguments, task_vars=task_vars)
        except BuildError as error:
            return {"failed": True, "msg": str(error)}
        for line in result.get("output") or ():
            display.display(f"  {printable(line)}")
        if not result.get("failed") and not self._task.check_mode and state != "removed":
            display.display(progress(str(image), state, machine, arguments, result))
        return result

    def _build(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        given = arguments["build"]
        build = ImageBuild(given["context"], given["dockerfile"], given["args"], given["push"])
        directory = self._make_tmp_path()
        remote = self._connection._shell.join_path(directory, "context.tar")
        try:
            with tempfile.NamedTemporaryFile(prefix="argus-verl-context-") as context:
                write_context(build, context)
                context.flush()
                if inputs_hash(build) != given["inputs"]:
                    raise BuildError(f"{build.context} has changed during this run: run it again")
                self._transfer_file(context.name, remote)
            self._fixup_perms2((directory, remote))
            sent = {**arguments, "build": {**given, "context": remote}}
            result: dict[str, Any] = self._execute_module(module_args=sent, task_vars=task_vars)
            return result
        finally:
            self._remove_tmp_path(directory, force=True)
            self._connection._shell.tmpdir = None


def progress(image: str, state: str, machine: str, arguments: dict[str, Any], result: dict[str, Any]) -> str:
    """A line about what was done: how much, how fast, and for which of several machines."""
    seconds = float(result["seconds"])
    among = f", machine {arguments['number']} of {arguments['count']}" if state == "loaded" else ""
    size = int(result.get("bytes") or 0)
    rate = f", {size_text(int(size / max(seconds, 0.1)))}/s" if size else ""
    amount = f"{size_text(size)} in " if size else "in "
    return f"{image}: {state} on {machine}{among}: {amount}{seconds:.0f} s{rate}"
