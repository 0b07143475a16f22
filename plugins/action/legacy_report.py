# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.legacy_report`: show an earlier Ray, and refuse what cannot be removed.

Documented in plugins/modules/legacy_report.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.cluster.legacy import legacy_report
from ansible_collections.argus.verl.plugins.modules.legacy_report import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import machine_name
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show

# In what the role ray_node registers what a machine has.
RESULT = "__ray_node_legacy"


def names_of(given: Sequence[str] | str) -> list[str]:
    """Also of text, which -e passes: names with commas between them, in brackets or not."""
    listed = given.strip("[] ").split(",") if isinstance(given, str) else given
    return [name for each in listed if (name := str(each).strip(" '\""))]


class ActionModule(Action):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        hosts = {host: variables["hostvars"][host] for host in variables["ansible_play_hosts_all"]}
        answers = {machine_name(host, own): (own.get(RESULT) or {}).get("found", []) for host, own in hosts.items()}
        names = {option: names_of(arguments[option]) for option in ("remove", "end_jobs")}
        return {**show(**legacy_report(answers, **names)), **names}
