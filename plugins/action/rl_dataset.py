# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.rl_dataset`: have the program in the head's node stage a dataset, with files of the controller.

Documented in plugins/modules/rl_dataset.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import size_text
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.result import Status
from ansible_collections.argus.verl.plugins.plugin_utils.staging_call import StagingAction
from ansible_collections.argus.verl.plugins.plugin_utils.upload import read, resolved, upload_of

display = Display()


class ActionModule(StagingAction):
    kind = "dataset"

    def stage(self, arguments: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        item, files = resolved(arguments, self.node)
        if not files:
            return self.staged(item)
        upload = upload_of(files, Path(str(task_vars.get("inventory_dir") or Path.cwd())))
        result = self.staged({**item, "upload": asdict(upload)}) if item.get("verify") != "full" else {}
        if not result or result.get("files_needed"):
            # Files are read only if their size and time of change do not tell, or if the dataset does not exist.
            upload = read(upload)
            result = self.staged({**item, "upload": asdict(upload)})
        size = f"{size_text(upload.bytes)} of {upload.label}"
        if result.get("files_needed"):
            display.display(f"{item['name']}: uploading {size}")
            attachments = self.sent([file.path for file in upload.all])
            return self.staged({**item, "upload": asdict(upload)}, attachments, upload.bytes)
        if self._task.check_mode and result.get("status") == Status.STAGED:
            display.display(f"{item['name']}: would upload {size}")
        return result
