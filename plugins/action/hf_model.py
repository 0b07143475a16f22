# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.hf_model`: have the program in the head's node stage a model.

Documented in plugins/modules/hf_model.py.
"""

from __future__ import annotations

from ansible_collections.argus.verl.plugins.plugin_utils.staging_call import StagingAction


class ActionModule(StagingAction):
    kind = "model"
