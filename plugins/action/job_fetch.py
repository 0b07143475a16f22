# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.job_fetch` on the controller: fetch the bundle, unpack new files, remove the bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import size_text
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.bundle import (
    BundleError,
    Limits,
    limits,
    shown,
    unpack,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.state import describe
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.submission_id import SUBMISSION_ID
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.plugin_utils import copying
from ansible_collections.argus.verl.plugins.plugin_utils.following import no_such_id

display = Display()


def warning(skipped: Sequence[str]) -> str:
    return f"Not all files were fetched: {'; '.join(map(shown, skipped))}"


def limits_of(arguments: Mapping[str, Any]) -> Limits:
    """The limits of a task whose arguments the module has accepted."""
    checkpoints = boolean(arguments.get("checkpoints") or False)
    return limits(checkpoints, *(int(arguments.get(name) or 0) for name in ("max_file_mib", "max_total_mib")))


def fetch(connection: Any, host: str, remote: str, local: str, size: int) -> None:
    """Fetch a bundle. Raises BundleError.

    Not with the connection's own fetch_file: where nodes are processes, the bundle belongs to the user of the jobs, and
    one of them may have replaced it by a FIFO, or by a link to what has no end. The user is the module's (become). With
    an input, ssh uses no terminal, which would change what is read.
    """
    become = connection.become

    def run(command: str, _data: bytes | None) -> bytes:
        command = become.build_become_command(command, connection._shell) if become else command
        code, stdout, stderr = connection.exec_command(command, in_data=b"\n", sudoable=bool(become))
        if code:
            raise BundleError(copying.not_copied(host, remote, stderr))
        return bytes(become.strip_become_success(stdout) if become else stdout)

    copying.fetch(run, remote, local, size)
    if Path(local).stat().st_size != size:
        raise BundleError(f"{host}: another process has changed {remote}; fetch again")


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if not SUBMISSION_ID.fullmatch(str(arguments.get("submission_id") or "")):
            # The id becomes a path on the controller.
            return {"failed": True, "changed": False, "msg": no_such_id(arguments.get("submission_id"))}
        result: dict[str, Any] = self._execute_module("argus.verl.job_fetch", arguments, task_vars=task_vars)
        if result.get("failed"):
            return result
        remote, skipped = str(result.pop("bundle")), [str(one) for one in result.get("skipped", [])]
        dest = Path(arguments["dest"]).expanduser().resolve()
        target = dest / arguments["submission_id"]
        change, allowed, size = not self._task.check_mode, limits_of(arguments), int(result.pop("bundle_bytes"))
        try:
            if size > allowed.bundle:
                raise BundleError(f"its bundle has {size_text(size)}, more than {size_text(allowed.bundle)}")
            with tempfile.NamedTemporaryFile(suffix=".tar.gz") as local:
                fetch(self._connection, str((task_vars or {}).get("inventory_hostname")), remote, local.name, size)
                files = unpack(local.name, dest, target.name, allowed, change)
        except BundleError as error:
            return {"failed": True, "changed": False, "msg": f"The archive was not fetched: {error}."}
        finally:
            self._remove_tmp_path(remote, force=True)
        if skipped:
            # Ansible does not show the warnings of a task that has changed nothing.
            display.warning(warning(skipped))
        return {
            **result,
            "changed": bool(files),
            "path": str(target),
            "files": files,
            "job": describe(Archive(target), None, tail=0).to_json(),
        }
