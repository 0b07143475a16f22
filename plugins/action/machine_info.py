# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.machine_info`: run the module on the machine, and add the times that tell how wrong its clock is.

Documented in plugins/modules/machine_info.py.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """Adds `clock`: when the module was sent, and when its answer was received, by the controller's clock."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        sent = time.time()
        result: dict[str, Any] = self._execute_module(task_vars=task_vars)
        return {**result, "clock": {"sent": sent, "received": time.time()}}
