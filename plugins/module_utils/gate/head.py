# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job on its way from the head to Ray: what has to be there, its archive, and the call of the Jobs API."""

from __future__ import annotations

import runpy
from pathlib import Path

from ..findings import Finding
from ..job.spec import JobSpec
from ..job.spec_checks import version_findings
from ..job.verl_releases import Profile, profile_of, refusal
from ..launcher import checkpoints
from ..launcher.archive import Archive
from ..shared_root import archive_path
from ..text import nearest


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


def snapshot_profile(code_path: Path) -> Profile | None:
    """What the snapshot's verl names its settings; None where that is not known."""
    return profile_of(read_verl_version(code_path) or "")


def snapshot_findings(code_path: Path) -> list[Finding]:
    if not code_path.is_dir():
        known = sorted(path.name for path in code_path.parent.glob("*") if path.is_dir() and path.name[0] != ".")
        todo = f"stage it with stage.yml, or use one that is there: {', '.join(known) or 'none'}"
        return [Finding("code_path", f"there is no snapshot {code_path}", todo, key="code_path")]
    if read_marker(code_path) is None:
        todo = "snapshots come from stage.yml; a plain directory may change under a running job"
        return [Finding("code_path", f"{code_path} has no mvp_marker.py with a MARKER", todo, key="code_path")]
    version = read_verl_version(code_path) or "unknown"
    if profile_of(version) is None:
        return [Finding("code_path", f"{code_path} is verl {version}", refusal(version), key="code_path")]
    return []


def file_findings(spec: JobSpec) -> list[Finding]:
    """What the JobSpec names, looked for where the head sees it; links are followed."""
    root = Path(spec.shared_root)
    if not (root / "jobs").is_dir():
        todo = "give the path at which nodes see the shared root; cluster_up.yml makes jobs/ in it"
        return [Finding("shared_root", f"{root}/jobs is not there on the head", todo, key="shared_root")]
    inputs = spec.inputs
    code_path, model, dataset = Path(inputs.code_path), Path(inputs.model), Path(inputs.dataset)
    found = snapshot_findings(code_path)
    profile = snapshot_profile(code_path)
    wanted = [] if found else [("code_path", code_path, code_path / "mvp_marker.py")]
    found += version_findings(spec, profile) if profile and not found else []
    wanted += [
        ("model", model, model / "config.json"),
        ("dataset", dataset, dataset / "train.parquet"),
        ("dataset", dataset, dataset / "val.parquet"),
    ]
    if inputs.reward:
        wanted.append(("reward_fn_path", Path(inputs.reward.file), Path(inputs.reward.file)))
    for key, path, file in wanted:
        if not file.is_file():
            found.append(Finding(key, f"{file} is not there", f"stage it, or correct {key}", key=key))
        elif not file.resolve().is_relative_to(root.resolve()):
            todo = f"copy it to {root}: a link out of it may lead nowhere on another node"
            found.append(Finding(key, f"{path} leads out of the shared root, to {file.resolve()}", todo, key=key))
    return found


def resume_findings(spec: JobSpec, world_size: int) -> tuple[list[Finding], checkpoints.Checkpoint | None]:
    """The checkpoint that a JobSpec wants to go on from, or why it cannot.

    world_size: processes that will train, one for each GPU; FSDP's shards are of exactly as many.
    """
    origin = spec.resume_from
    if origin is None:
        return [], None

    def refused(what: str, todo: str) -> tuple[list[Finding], None]:
        return [Finding("resume_from", what, todo, key="resume_from")], None

    archive = Archive(archive_path(spec.shared_root, origin))
    plan = archive.plan()
    if plan is None or not plan.workload:
        known = sorted(path.parent.name for path in archive.path.parent.glob("*/checkpoints"))
        return refused(f"there is no job {origin}", nearest(origin, known) or "see status.yml")
    if plan.workload != spec.workload:
        what = f"{origin} is a job of {plan.workload}, this one of {spec.workload}"
        return refused(what, "resume from a job of the same workload")
    found = list(checkpoints.finished(archive.path / "checkpoints", spec.workload))
    good = next((checkpoint for checkpoint in found if not checkpoint.problem), None)
    if good is None:
        why = "; ".join(checkpoint.problem for checkpoint in found) or "it has none"
        return refused(f"{origin} has no complete checkpoint: {why}", "choose another job")
    if good.world_size not in (0, world_size):
        what = f"{good.path} is of {good.world_size} processes, this job has {world_size}"
        return refused(what, "ask for as many GPUs in resources")
    return [], good
