# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.user_code`: have the program in the head's node copy Python files of the controller.

Documented in plugins/modules/user_code.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import USER_CODE
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.dataset.upload import UploadFile
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.files import file_sha256
from ansible_collections.argus.verl.plugins.plugin_utils.staging_call import StagingAction, failed
from ansible_collections.argus.verl.plugins.plugin_utils.user_code import MOST_FILES, every_file


class ActionModule(StagingAction):
    kind = "user_code"

    def stage(self, arguments: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        source = str(arguments.get("src", ""))
        try:
            top = self._find_needle("files", source) + ("/" if source.endswith("/") else "")
        except AnsibleError:
            return failed(Finding(source, "is no file or directory of this controller.", "Correct its path."))
        sources = {path.removeprefix(f"{USER_CODE}/"): file for path, file in every_file(top)}
        if len(sources) > MOST_FILES:
            return failed(Finding(source, f"has more than {MOST_FILES} files.", "Give a directory with fewer."))
        files = [UploadFile(path, file.stat().st_size, 0, file_sha256(str(file))) for path, file in sources.items()]
        item = {"name": Path(top).name, "files": [asdict(file) for file in files], "diff": self._task.diff}
        result = self.staged(item)
        if result.get("files_needed"):
            attachments = self.sent([str(file) for file in sources.values()])
            result = self.staged(item, attachments, sum(file.size for file in files))
        before = result.pop("before", {})
        return {**result, "diff": [difference(path, text, sources[path]) for path, text in before.items()]}


def difference(path: str, before: str, file: Path) -> dict[str, str]:
    after = file.read_text(encoding="utf-8", errors="replace")
    return {"before_header": path, "before": before, "after_header": str(file), "after": after}
