# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.job_fetch`: have the program on the head pack the archive, and unpack new files on the controller.

Documented in plugins/modules/job_fetch.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.bundle import (
    BundleError,
    Limits,
    limits,
    unpack,
)
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.state import describe
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.submission_id import SUBMISSION_ID
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.plugin_utils.following import no_such_id
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import (
    NODE,
    SECONDS,
    ProgramError,
    call_for_file,
    given_node,
    refused,
)

display = Display()
ARGUMENTS = {
    "node": {"type": "dict", "options": NODE},
    "submission_id": {"type": "str", "required": True},
    "checkpoints": {"type": "bool", "default": False},
    "max_file_mib": {"type": "int", "default": 0},
    "max_total_mib": {"type": "int", "default": 0},
    "dest": {"type": "path", "required": True},
}
# The slowest file system and compression.
BYTES_PER_SECOND = 10 << 20


def seconds(size: Limits) -> float:
    """How long packing may take."""
    return SECONDS + size.total / BYTES_PER_SECOND


def warning(skipped: Sequence[str]) -> str:
    return f"Not all files were fetched: {'; '.join(skipped)}"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs a verb of the program; no module is sent."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        node, dest = given_node(arguments.pop("node"), task_vars), arguments.pop("dest")
        if not SUBMISSION_ID.fullmatch(arguments["submission_id"] or ""):
            # The id becomes a path on the controller.
            return {"failed": True, "changed": False, "msg": no_such_id(arguments["submission_id"])}
        size = limits(arguments["checkpoints"], arguments["max_file_mib"], arguments["max_total_mib"])
        target = Path(dest).resolve() / arguments["submission_id"]
        try:
            with tempfile.NamedTemporaryFile(suffix=".tar.gz") as bundle:
                answer = call_for_file(self, node, "fetch", arguments, bundle.name, size.bundle, seconds(size))
                if not answer.done:
                    return refused(answer)
                files = unpack(bundle.name, target, size, change=not self._task.check_mode)
        except (BundleError, ProgramError) as error:
            return {"failed": True, "changed": False, "msg": f"The archive was not fetched: {error}."}
        skipped = answer.result.get("skipped")
        skipped = [printable(line, lines=False) for line in skipped] if isinstance(skipped, list) else []
        if skipped:
            # Ansible does not show the warnings of a task that has changed nothing.
            display.warning(warning(skipped))
        return {
            "changed": bool(files),
            "path": str(target),
            "archive": printable(answer.result.get("archive", "")),
            "skipped": skipped,
            "files": files,
            "job": describe(Archive(target), None, tail=0).to_json(),
        }
