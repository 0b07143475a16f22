# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of filters; see plugin_utils/filters/cluster.py."""

from __future__ import annotations

from ansible_collections.argus.verl.plugins.plugin_utils.deferred import Filter, deferred

NAMES = [
    "changes",
    "cluster_containers",
    "cluster_report",
    "dashboard_port",
    "disruption_findings",
    "expected_nodes",
    "job_findings",
    "left_processes",
    "machine_work",
    "node_directory",
    "node_plan",
    "presence",
    "rotation_findings",
    "sessions_directory",
    "survey",
    "token_file",
]


class FilterModule:
    def filters(self) -> dict[str, Filter]:
        return deferred("cluster", NAMES)
