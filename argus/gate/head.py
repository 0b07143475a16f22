# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks on the head: the files that a JobSpec names, and the checkpoint that it resumes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..checks.common import read_verl_version
from ..common.findings import Finding, about
from ..common.shared_root import JOBS, archive_path, named
from ..common.text import nearest
from ..jobspec.spec import JobSpec
from ..jobspec.spec_checks import STAGED_NAME, version_findings
from ..jobspec.verl_releases import SFT, Profile, profile_of, refusal
from ..launcher import checkpoints
from ..launcher.archive import Archive
from ..launcher.checkpoints import Checkpoint
from ..launcher.reading import UnreadableError, read_text

MARKER = re.compile(r"""^MARKER[ \t]*=[ \t]*(["'])([^"'\\\n]*)\1[ \t]*$""", re.MULTILINE)
MARKER_BYTES = 4096


def read_marker(code_path: Path) -> str | None:
    """The MARKER of a snapshot; None if it has none. Jobs can write to snapshots, so nothing of them runs here."""
    try:
        found = MARKER.search(read_text(code_path / "mvp_marker.py", MARKER_BYTES))
    except (OSError, UnreadableError):
        return None
    return found[2] if found and STAGED_NAME.fullmatch(found[2]) else None


def snapshot_profile(code_path: Path) -> Profile | None:
    """How the verl of a snapshot names its settings; None if that is unknown."""
    return profile_of(read_verl_version(code_path) or "")


def snapshot_findings(code_path: Path) -> list[Finding]:
    if not code_path.is_dir():
        known = sorted(path.name for path in code_path.parent.glob("*") if path.is_dir() and path.name[0] != ".")
        todo = "stage it with stage.yml" + (f", or use one that exists: {', '.join(known)}" if known else "")
        return [about("code_path", f"there is no snapshot {code_path}", todo)]
    if read_marker(code_path) is None:
        todo = "use a snapshot from stage.yml: a plain directory may change under a running job"
        return [about("code_path", f"{code_path} has no mvp_marker.py with a MARKER", todo)]
    version = read_verl_version(code_path) or "unknown"
    if profile_of(version) is None:
        return [about("code_path", f"{code_path} contains verl {version}, which is not supported", refusal(version))]
    return []


def file_findings(spec: JobSpec) -> list[Finding]:
    """Problems with the files that a JobSpec names, as the head sees them. Links are followed."""
    root = Path(spec.shared_root)
    if not (root / JOBS).is_dir():
        todo = "set shared_root to the path at which nodes see it; cluster_up.yml creates jobs/ in it"
        return [about("shared_root", f"{root / JOBS} does not exist on the head", todo)]
    code_path = Path(spec.inputs.code_path)
    found = snapshot_findings(code_path)
    profile = snapshot_profile(code_path)
    if not found:
        found += version_findings(spec, profile) if profile else []
        found += input_findings("code_path", code_path, code_path / "mvp_marker.py", root)
    for key, path, file in inputs_of(spec):
        found += input_findings(key, path, file, root)
    return found


def inputs_of(spec: JobSpec) -> Iterator[tuple[str, Path, Path]]:
    """The key, the path and a required file of each input besides the snapshot."""
    inputs = spec.inputs
    model, dataset = Path(inputs.model), Path(inputs.dataset)
    yield "model", model, model / "config.json"
    yield "dataset", dataset, dataset / "train.parquet"
    if spec.workload != SFT:
        yield "dataset", dataset, dataset / "val.parquet"
    if inputs.reward:
        yield "reward_fn_path", Path(inputs.reward.file), Path(inputs.reward.file)


def input_findings(key: str, path: Path, file: Path, root: Path) -> list[Finding]:
    """Whether a required file of an input exists, below the shared root."""
    if not file.is_file():
        todo = f"stage it with stage.yml, copy it into {named(str(root))}, or correct {key}"
        if not path.exists():
            known = (other.name for other in path.parent.glob("*") if other.name[0] != ".")
            todo = nearest(path.name, known) or todo
        return [about(key, f"{file} does not exist", todo)]
    real = file.resolve()
    if not real.is_relative_to(root.resolve()):
        todo = f"copy it there: other nodes may not have {real}"
        return [about(key, f"{path} leads out of {named(str(root))}, to {real}", todo)]
    return []


def resume_findings(spec: JobSpec, world_size: int) -> tuple[list[Finding], Checkpoint | None]:
    """Why a job cannot resume from the one that it names, or the checkpoint that it resumes from.

    world_size: the number of training processes, one for each GPU. FSDP's shards are for exactly as many.
    """
    origin = spec.resume_from
    if origin is None:
        return [], None
    archive = Archive(archive_path(spec.shared_root, origin))
    try:
        plan = archive.plan()
        found = list(checkpoints.finished(archive.path / "checkpoints", spec.workload))
    except UnreadableError as error:
        return [about("resume_from", f"the archive of {origin} is unreadable: {error}", "choose another job")], None
    if plan is None or not plan.workload:
        known = sorted(path.parent.name for path in archive.path.parent.glob("*/checkpoints"))
        todo = nearest(origin, known) or "status.yml lists the jobs"
        return [about("resume_from", f"there is no job {origin}", todo)], None
    if plan.workload != spec.workload:
        what = f"{origin} is a job of workload {plan.workload}, but this job has workload {spec.workload}"
        return [about("resume_from", what, "resume from a job of the same workload")], None
    good = next((checkpoint for checkpoint in found if not checkpoint.problem), None)
    if good is None:
        why = "; ".join(checkpoint.problem for checkpoint in found) or "it saved none"
        return [about("resume_from", f"{origin} has no complete checkpoint: {why}", "choose another job")], None
    if good.world_size not in (0, world_size):
        what = f"{good.path} was saved by {good.world_size} processes, but this job has {world_size}"
        return [about("resume_from", what, f"set resources to {good.world_size} GPUs in total")], None
    return [], good
