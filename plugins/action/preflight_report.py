# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.preflight_report`: plan, compare and judge all machines. Documented in modules/preflight_report.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import SEVERITIES, Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Judged, grouped
from ansible_collections.argus.verl.plugins.module_utils.preflight.table import CHECKS
from ansible_collections.argus.verl.plugins.modules.preflight_report import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, documented_options, failed
from ansible_collections.argus.verl.plugins.plugin_utils.images import BuildError, image_builds
from ansible_collections.argus.verl.plugins.plugin_utils.preflight import image_sources, planned, reported
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import OF_NODES, play_variables
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

PAGE = Path(__file__).parents[1] / "plugin_utils" / "preflight.html.j2"


def hardware_rows(result: Judged) -> tuple[list[str], list[list[str]]]:
    """A table of the hardware. Machines that are alike share a row."""
    titles = list(dict.fromkeys(title for cells in result.hardware.values() for title in cells))
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host in result.hosts:
        cells = result.hardware.get(host, {})
        hosts.setdefault(tuple(cells.get(title) or "-" for title in titles), []).append(host)
    return ["machine", *titles], [[", ".join(names), *cells] for cells, names in hosts.items()]


def shown(findings: Sequence[Finding]) -> list[Finding]:
    """Findings for a terminal, with the key by which they are accepted."""
    return [
        replace(finding, what=f"{finding.what} [{finding.key}]") if finding.key else finding
        for finding in grouped(findings)
    ]


def page(result: Judged, cluster: str, when: str) -> str:
    """The result as an HTML page."""
    header, rows = hardware_rows(result)
    order = (*SEVERITIES, "ok", "")
    states = {key: [result.state(host, key) for host in result.hosts] for key in result.checks}
    # Checks are the rows of their table, as there are many, and those come first that found something.
    checks = sorted(states, key=lambda key: min(map(order.index, states[key]), default=0))
    severities = [finding.severity for finding in result.findings]
    environment = Environment(
        loader=FileSystemLoader(PAGE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        # The output of a macro is text that is safe already.
        finalize=lambda value: (
            printable(value, lines=False) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    return environment.get_template(PAGE.name).render(
        cluster=cluster,
        when=when,
        tier=result.tier,
        hosts=result.hosts,
        counts={severity: severities.count(severity) for severity in SEVERITIES},
        findings=grouped(result.findings),
        checks=[(key, CHECKS[key].about, states[key]) for key in checks],
        sections=[{"title": "Hardware", "header": header, "rows": rows}, *map(asdict, result.sections)],
    )


class ActionModule(Action):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        hostvars, groups = variables["hostvars"], variables["groups"]
        if arguments["state"] == "planned":
            # Once for all machines: Ansible's own validation of a role is a task on each of them.
            typed, problems = play_variables(variables, self._templar, (*OF_NODES, "preflight"))
            plan = {} if problems else planned(groups, hostvars, arguments["hosts"], typed)
            return {**show("Variables", findings=problems), **plan}
        try:
            # Only here: who takes a cluster down may have another controller, without these files.
            builds = image_builds(arguments["builds"], arguments["images"], str(variables.get("inventory_dir") or "."))
        except BuildError as error:
            return failed(error)
        missing, held = image_sources(arguments, hostvars, groups)
        report = self._report(arguments, reported(arguments, hostvars, groups, missing))
        return {**report, "image_builds": builds, "controller_images": held}

    def _report(self, arguments: Mapping[str, Any], result: Judged) -> Result:
        is_saved = bool(arguments["dest"])
        files = save(arguments["dest"], arguments["cluster"], result) if is_saved and not self._task.check_mode else []
        # Where files are wanted, people want to see everything.
        header, rows = hardware_rows(result) if is_saved else (None, None)
        text = [f"Report: {name}" for name in files if name.endswith(".html")]
        if is_saved and not result.findings:
            where = "one machine" if len(result.hosts) == 1 else f"{len(result.hosts)} machines"
            text = [f"{len(result.checks)} checks of {where} have found nothing.", *text]
        report = show("Preflight", header, rows, shown(result.findings), text)
        return {**report, "preflight": result.to_json(), "files": files}


def save(dest: str, cluster: str, result: Judged) -> list[str]:
    """Write the result to the controller; return the files."""
    when = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    directory = Path(dest).expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    contents = {
        "html": page(result, cluster, when),
        "json": json.dumps({"time": when, "cluster": cluster, **result.to_json()}, indent=1) + "\n",
    }
    files = [directory / f"{cluster}.{ending}" for ending in contents]
    for file, content in zip(files, contents.values(), strict=True):
        file.write_text(content, encoding="utf-8")
    return [str(file) for file in files]
