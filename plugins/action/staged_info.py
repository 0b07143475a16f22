# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.staged_info`: run argus staged in a node. Documented in plugins/modules/staged_info.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.argus.verl.plugins.modules.staged_info import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NodeAction

# Enough to read all models from a slow file server.
VERIFY_SECONDS = 86_400


class ActionModule(NodeAction):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        return self.ask("staged", arguments, VERIFY_SECONDS)
