# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.report`: show a table, and fail on errors. Documented in plugins/modules/report.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.modules.report import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show


class ActionModule(Action):
    options = documented_options(DOCUMENTATION)
    relations: ClassVar[dict[str, Any]] = {"required_together": [("header", "rows")]}

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        return show(**{**arguments, "findings": [Finding(**finding) for finding in arguments["findings"]]})
