# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: the report of Ray that was started by hand on all machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import machine_name
from ansible_collections.argus.verl.plugins.module_utils.cluster.legacy import legacy_report as report_of

RESULT = "__ray_node_legacy"
Names = Sequence[str] | str


def legacy_report(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], remove: Names, end_jobs: Names
) -> dict[str, Any]:
    answers = {
        machine_name(host, hostvars[host]): (hostvars[host].get(RESULT) or {}).get("found", []) for host in hosts
    }
    return report_of(answers, named(remove), named(end_jobs))


def named(given: Names) -> list[str]:
    """Also of text, which -e passes: names with commas between them, in brackets or not."""
    listed = given.strip("[] ").split(",") if isinstance(given, str) else given
    return [name for each in listed if (name := str(each).strip(" '\""))]


FILTERS = {
    "legacy_names": named,
    "legacy_report": legacy_report,
}
