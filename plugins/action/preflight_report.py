# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.preflight_report`: judge all machines and show it. Documented in plugins/modules/preflight_report.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.action.report import failure, report_lines
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.images import image_findings
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import (
    Groups,
    HostVars,
    cluster_nodes,
    machine_name,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Section
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import (
    Judged,
    Probed,
    grouped,
    judged,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import IMAGE
from ansible_collections.argus.verl.plugins.module_utils.preflight.page import page
from ansible_collections.argus.verl.plugins.module_utils.preflight.tier import Tier
from ansible_collections.argus.verl.plugins.plugin_utils.attendance import machine_attendance
from ansible_collections.argus.verl.plugins.plugin_utils.images import BuildError, image_builds, needed_images
from ansible_collections.argus.verl.plugins.plugin_utils.terminal import terminal

display = Display()
# The result of machine_info, as the role preflight registers it.
RESULT = "__preflight"
SPECIFICATION = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "cluster": {"type": "str", "required": True},
    "tier": {"type": "str", "choices": ["fast", "standard", "deep"], "default": "fast"},
    "accept": {"type": "list", "elements": "str", "default": []},
    "least": {"type": "int"},
    "findings": {"type": "list", "elements": "dict", "default": []},
    "sections": {"type": "list", "elements": "dict", "default": []},
    "images": {"type": "dict", "default": {}},
    "builds": {"type": "dict", "default": {}},
    "archive": {"type": "dict", "default": {}},
    "dest": {"type": "path"},
    "shared_root": {"type": "str"},
}


def judgement(arguments: Mapping[str, Any], hostvars: HostVars, groups: Groups) -> Judged:
    present = machine_attendance(arguments["hosts"], hostvars, groups, arguments["least"])
    results = {machine_name(host, hostvars[host]): hostvars[host].get(RESULT) or {} for host in arguments["hosts"]}
    # A machine that could not be reached, or failed, has no answer.
    probed = {name: Probed.from_json(name, result) for name, result in results.items() if "machine" in result}
    machines = {name: answer.context.machine for name, answer in probed.items()}
    images, builds = arguments["images"], arguments["builds"]
    needed = needed_images(arguments["hosts"], hostvars, groups, images, machines)
    built = [image for kind, image in images.items() if kind in builds]
    missing = image_findings(needed, machines, built, bool(arguments["archive"]))
    found = judged(
        list(results),
        probed,
        Tier(arguments["tier"]),
        arguments["accept"],
        [
            *present.findings,
            *(replace(finding, key=IMAGE.key) for finding in missing),
            *(Finding(**finding) for finding in arguments["findings"]),
        ],
        [Section(**section) for section in arguments["sections"]],
        [machine_name(node, hostvars[node]) for node in cluster_nodes(groups)],
    )
    return replace(found, findings=present.tolerated(found.findings))


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


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller; the files on the shared root are written by a module on the task's machine."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=SPECIFICATION)
        variables = task_vars or {}
        try:
            above = str(variables.get("inventory_dir") or ".")
            builds = image_builds(arguments["builds"], arguments["images"], above)
        except BuildError as error:
            return {"failed": True, "msg": str(error)}
        result = judgement(arguments, variables["hostvars"], variables["groups"])
        is_saved = bool(arguments["dest"] or arguments["shared_root"])
        files, problems = (
            self._save(arguments, result, task_vars) if is_saved and not self._task.check_mode else ([], [])
        )
        # Where files are wanted, people want to see everything.
        header, rows = hardware_rows(result) if is_saved else (None, None)
        text = [*(f"Report: {name}" for name in files if name.endswith(".html")), *problems]
        if is_saved and not result.findings:
            where = "one machine" if len(result.hosts) == 1 else f"{len(result.hosts)} machines"
            text = [f"{len(result.checks)} checks of {where} have found nothing.", *text]
        findings = shown(result.findings)
        lines = report_lines("Preflight", header, rows, findings, text, terminal(display.columns))
        if lines:
            display.display("\n" + "\n".join(lines))
        answer = {"changed": False, "preflight": result.to_json(), "files": files, "image_builds": builds}
        message = failure(findings, None)
        return {**answer, "failed": True, "msg": message} if message else answer

    def _save(
        self, arguments: Mapping[str, Any], result: Judged, task_vars: dict[str, Any] | None
    ) -> tuple[list[str], list[str]]:
        """Return the files, and what prevented others."""
        name = arguments["cluster"]
        when = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        contents = {
            "html": page(result, f"Preflight of cluster {name}", when),
            "json": json.dumps({"time": when, "cluster": name, **result.to_json()}, indent=1) + "\n",
        }
        files, problems = [], []
        if arguments["dest"]:
            directory = Path(arguments["dest"]).expanduser()
            directory.mkdir(parents=True, exist_ok=True)
            for ending, content in contents.items():
                (directory / f"{name}.{ending}").write_text(content, encoding="utf-8")
                files.append(str(directory / f"{name}.{ending}"))
        if arguments["shared_root"]:
            asked = {"shared_root": arguments["shared_root"], "name": name, **contents}
            try:
                saved = self._execute_module("argus.verl.preflight_files", asked, task_vars=task_vars)
            except AnsibleConnectionFailure:
                # Which is a finding of its own, with the reason.
                saved = {"msg": "the machine that writes it does not answer"}
            if saved.get("path"):
                files += [f"{saved['path']}/{name}.{ending}" for ending in contents]
            elif "path" not in saved:
                problems.append(f"The report is not on the shared root: {saved.get('msg', 'the machine failed')}")
        return files, problems
