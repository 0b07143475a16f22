# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.legacy_report`: show an earlier Ray, and refuse what cannot be removed.

Documented in plugins/modules/legacy_report.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import machine_name
from ansible_collections.argus.verl.plugins.module_utils.cluster.legacy import legacy_report
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show

ARGUMENTS = {
    "results": {"type": "str", "required": True},
    "remove": {"type": "raw", "default": []},
    "end_jobs": {"type": "raw", "default": []},
}


def names_of(given: Sequence[str] | str) -> list[str]:
    """Also of text, which -e passes: names with commas between them, in brackets or not."""
    listed = given.strip("[] ").split(",") if isinstance(given, str) else given
    return [name for each in listed if (name := str(each).strip(" '\""))]


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller, without a connection."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        variables = {host: (task_vars or {})["hostvars"][host] for host in (task_vars or {})["ansible_play_hosts_all"]}
        answers = {
            machine_name(host, own): (own.get(arguments["results"]) or {}).get("found", [])
            for host, own in variables.items()
        }
        remove, end_jobs = names_of(arguments["remove"]), names_of(arguments["end_jobs"])
        report = legacy_report(answers, remove, end_jobs)
        return {**show(**report), "remove": remove, "end_jobs": end_jobs}
