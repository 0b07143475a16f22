# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.report`: print a table and findings, and fail on errors. Documented in plugins/modules/report.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.modules.report import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report


class ActionModule(Action):
    options = documented_options(DOCUMENTATION)
    relations: ClassVar[dict[str, Any]] = {"required_together": [("header", "rows")]}

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        findings = [Finding(**finding) for finding in arguments["findings"]]
        return print_report(failure_text=arguments.pop("fail_when"), **{**arguments, "findings": findings})
