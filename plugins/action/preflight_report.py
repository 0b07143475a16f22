# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.preflight_report`: plan the preflight of all machines, or judge and show its results.

Documented in plugins/modules/preflight_report.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Judgement, group_findings
from ansible_collections.argus.verl.plugins.modules.preflight_report import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, documented_options, failure
from ansible_collections.argus.verl.plugins.plugin_utils.preflight import (
    BuildError,
    image_builds,
    missing_image_findings,
    preflight_plan,
    preflight_result,
)
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import NODE_ROLES, play_variables


def hardware_rows(result: Judgement) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a table of the hardware. Machines with the same hardware share a row."""
    titles = list(dict.fromkeys(title for cells in result.hardware.values() for title in cells))
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host in result.hosts:
        cells = result.hardware.get(host, {})
        hosts.setdefault(tuple(cells.get(title) or "-" for title in titles), []).append(host)
    return ["machine", *titles], [[", ".join(names), *cells] for cells, names in hosts.items()]


def with_keys(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, grouped, with the key by which users accept a finding in its text."""
    return [
        replace(finding, problem=f"{finding.problem} [{finding.key}]") if finding.key else finding
        for finding in group_findings(findings)
    ]


class ActionModule(Action):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        hostvars, groups = variables["hostvars"], variables["groups"]
        if arguments["state"] == "planned":
            # Validated here once: Ansible's own validation of a role is a task on each machine.
            typed, problems = play_variables(variables, self._templar, (*NODE_ROLES, "preflight"))
            plan = {} if problems else preflight_plan(groups, hostvars, arguments["hosts"], typed)
            return {**print_report("Variables", findings=problems), **plan}
        try:
            # Not when planning, as for cluster_down.yml: the controller may lack these files.
            builds = image_builds(arguments["builds"], arguments["images"], str(variables.get("inventory_dir") or "."))
        except BuildError as error:
            return failure(error)
        missing, local_images = missing_image_findings(arguments, hostvars, groups)
        report = self._report(arguments, preflight_result(arguments, hostvars, groups, missing))
        return {**report, "image_builds": builds, "controller_images": local_images}

    def _report(self, arguments: Mapping[str, Any], result: Judgement) -> Result:
        dest, hosts = arguments["dest"], len(result.hosts)
        # A user who asks for a report file wants to see the whole result.
        header, rows = hardware_rows(result) if dest else (None, None)
        text = list(result.measured)
        if dest and not result.findings:
            where = "one machine" if hosts == 1 else f"{hosts} machines"
            text.append(f"The {result.tier} checks of {where} have found nothing.")
        if dest and not self._task.check_mode:
            text.append(f"Report: {save(dest, arguments['cluster'], result)}")
        shown = print_report("Preflight", header, rows, with_keys(result.findings), text)
        return {**shown, "preflight": asdict(result)}


def save(dest: str, cluster: str, result: Judgement) -> Path:
    """Write the result as JSON to a directory of the controller, and return the path of the file."""
    when = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    file = Path(dest).expanduser() / f"{cluster}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"time": when, "cluster": cluster, **asdict(result)}, indent=1) + "\n", encoding="utf-8")
    return file
