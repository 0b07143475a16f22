# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job on its way from the head to Ray: what has to be there, its archive, and the call of the Jobs API."""

from __future__ import annotations

import inspect
import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from ansible_collections.argus.verl.plugins.module_utils import jobspec
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.launcher import __name__ as launcher_package
from ansible_collections.argus.verl.plugins.module_utils.launcher import archive as archive_module
from ansible_collections.argus.verl.plugins.module_utils.launcher import evidence as evidence_module
from ansible_collections.argus.verl.plugins.module_utils.launcher import launch as launch_module
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import FAILED, SUBMITTED, Archive

LAUNCHER_MAIN = '''"""Run as `python3 <archive>/config/launcher`; see launch.py."""

import sys

from argus_launcher.launch import main

sys.exit(main(sys.argv[1:]))
'''


class JobClient(Protocol):
    """The calls of ray.job_submission.JobSubmissionClient that are made here."""

    def submit_job(self, **arguments: Any) -> str: ...


def read_marker(code_path: Path) -> str | None:
    """The MARKER of a snapshot, or None when it has none."""
    try:
        return str(runpy.run_path(str(code_path / "mvp_marker.py"))["MARKER"])
    except Exception:  # whatever else it is, it is not a marker of ours
        return None


def read_verl_version(code_path: Path) -> str | None:
    try:
        return (code_path / "verl" / "version" / "version").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def snapshot_findings(code_path: Path) -> list[Finding]:
    if not code_path.is_dir():
        known = sorted(path.name for path in code_path.parent.glob("*") if path.is_dir() and path.name[0] != ".")
        todo = f"stage it with stage.yml, or use one that is there: {', '.join(known) or 'none'}"
        return [Finding("code_path", f"there is no snapshot {code_path}", todo)]
    if read_marker(code_path) is None:
        todo = "snapshots come from stage.yml; a plain directory may change under a running job"
        return [Finding("code_path", f"{code_path} has no mvp_marker.py with a MARKER", todo)]
    version = read_verl_version(code_path) or "unknown"
    if not version.startswith(tuple(f"{known}." for known in jobspec.VERL_VERSIONS)):
        todo = f"use a snapshot of verl {' or '.join(jobspec.VERL_VERSIONS)}: others name their settings differently"
        return [Finding("code_path", f"{code_path} is verl {version}", todo)]
    return []


def file_findings(spec: Mapping[str, Any]) -> list[Finding]:
    """What the JobSpec names, looked for where the head sees it; links are followed."""
    root = Path(spec["shared_root"])
    if not (root / "jobs").is_dir():
        todo = "give the path at which nodes see the shared root; cluster_up.yml makes jobs/ in it"
        return [Finding("shared_root", f"{root}/jobs is not there on the head", todo)]
    code_path = Path(jobspec.resolve_path(spec["code_path"], str(root), "common/code/verl"))
    model = Path(jobspec.resolve_path(spec["model"], str(root), "common/models"))
    dataset = Path(jobspec.resolve_path(spec["dataset"], str(root), "datasets"))
    found = snapshot_findings(code_path)
    wanted = [] if found else [("code_path", code_path, code_path / "mvp_marker.py")]
    wanted += [
        ("model", model, model / "config.json"),
        ("dataset", dataset, dataset / "train.parquet"),
        ("dataset", dataset, dataset / "val.parquet"),
    ]
    reward = jobspec.reward_function(spec)
    if reward:
        wanted.append(("reward_fn_path", Path(reward[0]), Path(reward[0])))
    for key, path, file in wanted:
        if not file.is_file():
            found.append(Finding(key, f"{file} is not there", f"stage it, or correct {key}"))
        elif not file.resolve().is_relative_to(root.resolve()):
            todo = f"copy it to {root}: a link out of it may lead nowhere on another node"
            found.append(Finding(key, f"{path} leads out of the shared root, to {file.resolve()}", todo))
    if reward and Path(reward[0]).is_file():
        text = Path(reward[0]).read_text(encoding="utf-8", errors="replace")
        if not re.search(rf"^(async )?def {reward[1]}\b|^{reward[1]}\s*=|import.*\b{reward[1]}\b", text, re.MULTILINE):
            found.append(Finding("reward_fn_path", f"{reward[0]} has no function {reward[1]}", "correct its name"))
    return found


def write_launcher(archive: Archive) -> None:
    """The launcher's own source, into the archive: what ran beside the training stays known."""
    package = "config/launcher/argus_launcher"
    archive.write_text(f"{package}/__init__.py", f'"""A copy of {launcher_package}."""\n')
    for module in (archive_module, evidence_module, launch_module):
        archive.write_text(f"{package}/{module.__name__.rpartition('.')[2]}.py", inspect.getsource(module))
    archive.write_text("config/launcher/__main__.py", LAUNCHER_MAIN)


def write_archive(archive: Archive, given: Mapping[str, Any], job: jobspec.Job) -> None:
    archive.write_json("config/job_spec.json", given)
    archive.write_json("config/runtime_env.json", job.runtime_env)
    archive.write_text("config/submit_cmd.txt", job.submit_command())
    archive.write_json("config/plan.json", job.plan())
    write_launcher(archive)


def send(archive: Archive, given: Mapping[str, Any], job: jobspec.Job, client: JobClient) -> None:
    """Reserve the archive, fill it and submit; afterwards there is a job, or an archive that says why not.

    Raises FileExistsError when somebody else has taken the id meanwhile.
    """
    archive.reserve()
    try:
        write_archive(archive, given, job)
        archive.set_status(SUBMITTED, workload=given["workload"], code_id=job.code_id)
        client.submit_job(
            entrypoint=job.entrypoint,
            submission_id=job.submission_id,
            runtime_env=job.runtime_env,
            entrypoint_num_cpus=job.entrypoint_num_cpus,
            entrypoint_resources=job.entrypoint_resources,
        )
    except BaseException as error:
        archive.set_status(FAILED, reason=f"it could not be submitted: {error}")
        raise


def same_spec(archive: Archive, given: Mapping[str, Any]) -> bool:
    """Whether the archive is of the very JobSpec."""
    return bool(archive.read_json("config/job_spec.json") == json.loads(json.dumps(given)))
