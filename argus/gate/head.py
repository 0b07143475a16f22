# SPDX-License-Identifier: Apache-2.0
"""Checks on the head: the files that a JobSpec names, and the checkpoint that the job resumes from."""

from __future__ import annotations

from pathlib import Path

from ..archive import checkpoints
from ..archive.archive import Archive
from ..archive.checkpoints import Checkpoint
from ..checks.request import read_verl_version
from ..common.findings import WARNING, Finding, about
from ..common.shared_root import JOBS_DIR, archive_path, shared_root_text
from ..common.text import spelling_hint
from ..io import reading
from ..io.reading import UnreadableError
from ..jobspec.spec import JobSpec
from ..jobspec.spec_checks import STAGED_NAME, version_findings
from ..jobspec.verl_releases import EVAL, GRPO, PPO, SFT, profile_of, soften_unknown_release, unsupported_remedy


def read_marker(code_path: Path) -> str | None:
    """The id of a snapshot, MARKER in its mvp_marker.py; None if it has none."""
    marker = reading.read_marker(code_path / "mvp_marker.py") or ""
    return marker if STAGED_NAME.fullmatch(marker) else None


def snapshot_findings(code_path: Path, is_command: bool) -> list[Finding]:
    """Whether code_path is a staged snapshot, for a training also of a supported release of verl."""
    if not code_path.is_dir():
        snapshots = sorted(path.name for path in code_path.parent.glob("*") if path.is_dir() and path.name[0] != ".")
        remedy = "stage it with stage.yml" + (f", or use one that exists: {', '.join(snapshots)}" if snapshots else "")
        return [about("code_path", f"there is no snapshot {code_path}", remedy)]
    if read_marker(code_path) is None:
        remedy = "use a snapshot from stage.yml: a plain directory may change under a running job"
        return [about("code_path", f"{code_path} has no mvp_marker.py with a MARKER", remedy)]
    version = read_verl_version(code_path) or "unknown"
    if profile_of(version) is None and not is_command:
        problem = f"{code_path} contains verl {version}, which is not supported"
        return [about("code_path", problem, unsupported_remedy(version))]
    return []


def file_findings(spec: JobSpec) -> list[Finding]:
    """Findings about the files that a JobSpec names. Links are followed."""
    root = Path(spec.shared_root)
    if not (root / JOBS_DIR).is_dir():
        remedy = "set shared_root to the path at which nodes see it; cluster_up.yml creates jobs/ in it"
        return [about("shared_root", f"{root / JOBS_DIR} does not exist on the head", remedy)]
    code_path = Path(spec.inputs.code_path)
    findings = snapshot_findings(code_path, bool(spec.command)) if spec.code_path else []
    if spec.command:
        return findings
    profile = profile_of(read_verl_version(code_path) or "")
    if not findings:
        findings += soften_unknown_release(profile.version, version_findings(spec, profile)) if profile else []
        if profile and profile.is_guess and "release" not in spec.accept:
            newest = ".".join(map(str, profile.release))
            problem = f"contains verl {profile.version}, newer than {newest}, whose rules are applied as warnings"
            findings.append(about("code_path", problem, "set accept: [release] once this is known", WARNING))
        findings += input_findings("code_path", code_path, code_path / "mvp_marker.py", root)
    model, dataset, reward = Path(spec.inputs.model), Path(spec.inputs.dataset), spec.inputs.reward
    findings += input_findings("model", model, model / "config.json", root)
    for split in {SFT: ("train",), EVAL: ("val",)}.get(spec.workload, ("train", "val")):
        findings += input_findings("dataset", dataset, dataset / f"{split}.parquet", root)
    return findings + (input_findings("reward_fn_path", Path(reward.file), Path(reward.file), root) if reward else [])


def input_findings(key: str, path: Path, file: Path, root: Path) -> list[Finding]:
    """Whether a required file of an input exists. The nodes check whether links lead out of the shared root."""
    if file.is_file():
        return []
    remedy = f"stage it with stage.yml, copy it into {shared_root_text(str(root))}, or correct {key}"
    if not path.exists():
        siblings = (other.name for other in path.parent.glob("*") if other.name[0] != ".")
        remedy = spelling_hint(path.name, siblings) or remedy
    return [about(key, f"{file} does not exist", remedy)]


def resume_findings(spec: JobSpec, world_size: int) -> tuple[list[Finding], Checkpoint | None]:
    """The checkpoint to resume from, or findings why there is none. Neither without resume_from.

    world_size: the number of training processes, one for each GPU. A checkpoint of FSDP has a shard for each.
    """
    origin = spec.resume_from
    if origin is None:
        return [], None
    archive = Archive(archive_path(spec.shared_root, origin))
    try:
        plan = archive.plan()
        # A validation needs no critic.
        workload = GRPO if spec.workload == EVAL else spec.workload
        saved = list(checkpoints.saved_checkpoints(archive.path / "checkpoints", workload))
    except UnreadableError as error:
        return [about("resume_from", f"the archive of {origin} is unreadable: {error}", "choose another job")], None
    if plan is None or not plan.workload:
        job_ids = sorted(path.parent.name for path in archive.path.parent.glob("*/checkpoints"))
        remedy = spelling_hint(origin, job_ids) or "status.yml lists the jobs"
        return [about("resume_from", f"there is no job {origin}", remedy)], None
    fitting = (GRPO, PPO) if spec.workload == EVAL else (spec.workload,)
    if plan.workload not in fitting:
        problem = f"{origin} is a job of workload {plan.workload}, but this job has workload {spec.workload}"
        return [about("resume_from", problem, f"resume from a job of workload {' or '.join(fitting)}")], None
    good = next((checkpoint for checkpoint in saved if not checkpoint.problem), None)
    if good is None:
        why = "; ".join(checkpoint.problem for checkpoint in saved) or "it saved none"
        remedy = "choose another job"
        if any(checkpoint.is_model for checkpoint in saved):
            remedy = "export it, and set model to the model that this makes: it begins with its weights"
        return [about("resume_from", f"{origin} has no complete checkpoint: {why}", remedy)], None
    if good.world_size not in (0, world_size):
        problem = f"{good.path} was saved by {good.world_size} processes, but this job has {world_size}"
        return [about("resume_from", problem, f"set resources to {good.world_size} GPUs in total")], None
    return [], good
