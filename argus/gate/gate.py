# SPDX-License-Identifier: Apache-2.0
"""The gate: all checks of a job before its submission. Runs on the head.

Its own checks cover the files that a JobSpec names, and the checkpoint that it resumes from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..archive import checkpoints
from ..archive.archive import Archive
from ..archive.checkpoints import Checkpoint
from ..archive.plan import COMMAND, VAL_ONLY
from ..checks.common import Configuration, Facts, as_list, read_verl_version
from ..checks.paths import named_files
from ..common.findings import NOTE, WARNING, Finding, about, errors
from ..common.shared_root import JOBS_DIR, USER_CODE_DIR, archive_path, is_under_root, shared_root_text
from ..common.text import spelling_hint
from ..io import reading
from ..io.hydra import override_key
from ..io.reading import UnreadableError
from ..jobspec.capacity import Cluster, driver_findings, size_findings, size_of, storage_findings
from ..jobspec.overrides import LOGGER, LOGGERS, VERL_UNITS, WITH_TENSORBOARD
from ..jobspec.owned import OVERRIDES, repetition_notes
from ..jobspec.plan import Job, plan_job
from ..jobspec.spec import JobSpec
from ..jobspec.spec_checks import STAGED_NAME, accelerator_findings, version_findings
from ..jobspec.verl_releases import EVAL, GRPO, PPO, SFT, profile_of, refusal, soften_unknown_release
from ..queue.room import UNITS_KEY, Demand, Room, find_placed_ids
from ..ray.api import RayHead, free_workers
from .nodes import Inspection, ask_nodes, refused_defaults
from .pools import pool_findings, used_pools

TENSORBOARD = "tensorboard"
SIMPLE, BACKEND_KEY = "SimpleStorage", "transfer_queue.backend.storage_backend"
# The parts of a checkpoint that verl's trainers load.
RESUMED = ("model", "optimizer", "extra")
# Backends of TransferQueue whose actors have names of their own in each job. Others start services with a fixed port or
# name: a second job ends those of the first (transfer_queue/storage/bootstrap: `pkill mooncake_master`), or shares its
# samples.
SEPARATE_BACKENDS = (SIMPLE, "RayStore")
AskNodes = Callable[[JobSpec, Job, str, Mapping[str, str]], Inspection]


@dataclass(frozen=True)
class GateResult:
    """The result of the gate.

    job: None if it could not be planned; then there are findings.
    checkpoint: the path of the checkpoint that the job resumes from, or "".
    capacity_problem: why the cluster has no capacity for the job now, or "".
    room: the free resources, for the last check right before the submission.
    resolved: the composed configuration as YAML, or "".
    files: the paths of users' files, by the settings that name them.
    """

    findings: tuple[Finding, ...]
    job: Job | None = None
    checkpoint: str = ""
    capacity_problem: str = ""
    room: Room = field(default_factory=Room)
    resolved: str = ""
    facts: Facts = field(default_factory=Facts)
    files: Mapping[str, str] = field(default_factory=dict)


def examine(
    spec: JobSpec,
    submission_id: str,
    head: RayHead,
    ask: AskNodes = ask_nodes,
    clock: Callable[[], float] = time.time,
) -> GateResult:
    """All problems of a JobSpec without syntax errors. Raises RayApiError if the head does not answer."""
    started = clock()
    placed = find_placed_ids(head, started)
    nodes = head.nodes()
    cluster = Cluster.of(nodes)
    findings = [*file_findings(spec), *size_findings(spec, cluster), *driver_findings(spec, nodes)]
    code_path = Path(spec.inputs.code_path)
    profile = profile_of(read_verl_version(code_path) or "")
    if spec.workload == COMMAND:
        profile = None
    if not cluster.workers or (profile is None and not spec.command):
        return GateResult(tuple(findings))
    findings += accelerator_findings(spec.workload, profile, cluster) if profile else []
    unfit, checkpoint = resume_findings(spec, size_of(spec, cluster).gpus)
    findings += unfit
    # Only SFT needs no data for validation; file_findings reports a file that is missing.
    validates = spec.workload != SFT or Path(spec.inputs.dataset, "val.parquet").exists()
    job = plan_job(spec, cluster, read_marker(code_path) or "", submission_id, profile, checkpoint, validates)
    # The present capacity does not matter to a job that can never run.
    can_run = not errors(findings)
    answers = ask(spec, job, profile.version if profile else "", workers_of(nodes))
    findings += new_findings(answers.findings, findings)
    user_code = f"{spec.shared_root}/{USER_CODE_DIR}"
    files = {f"command: {path}": path for path in spec.command if is_under_root(path, user_code)}
    if answers.composition.config is not None:
        config = Configuration(answers.composition.config)
        if profile and (dropped := refused_defaults(spec, answers.composition, profile.version)):
            job = without(job, dropped)
            text = f"{spec.module or f'verl {profile.version}'} has no {', '.join(dropped)}, which the job does not set"
            findings.append(about("module" if spec.module else "code_path", text, "", NOTE))
        job = with_steps(with_loggers(with_queue(job, config), config), config, answers.facts.steps)
        pools = used_pools(config, bool(spec.module))
        job = replace(job, plan=replace(job.plan, pools=pools))
        findings += (unfit := pool_findings(spec, pools, free_workers(nodes, {}), job.plan))
        can_run = can_run and not unfit
        findings += retry_findings(spec, config)
        files = named_files(config, spec.shared_root)
        user_module = Path(user_code, *(spec.module or "").split(".")).with_suffix(".py")
        files |= {"module": str(user_module)} if spec.module and user_module.is_file() else {}
    if can_run:
        findings += (never := storage_findings(spec, cluster, job.plan.storage_units))
        can_run = not never
    room = Room(tuple(head.capacity(started)), placed) if can_run else Room()
    waits_for = room.problem(submission_id, Demand.of(job.plan), head.jobs()) if can_run else ""
    if waits_for and not spec.wait_for_resources and not spec.depends_on:
        findings.append(no_room(waits_for))
    # Only without errors, the values are certainly those of the job.
    findings += [] if errors(findings) else repetition_notes(spec)
    return GateResult(
        findings=tuple(findings),
        job=job.with_python_path(answers.python_path),
        checkpoint=str(checkpoint.path) if checkpoint else "",
        capacity_problem=waits_for,
        room=room,
        resolved=answers.composition.yaml,
        facts=replace(answers.facts, workers=sorted(workers_of(nodes).values())),
        files=files,
    )


def new_findings(further: Iterable[Finding], reported: Iterable[Finding]) -> list[Finding]:
    """Findings without those about overrides or problems that were already reported."""
    reported = list(reported)
    overrides = {finding.key for finding in errors(reported) if finding.key.startswith(f"{OVERRIDES}.")}
    problems = {(finding.where, finding.problem) for finding in reported}
    return [
        finding
        for finding in further
        if finding.key not in overrides and (finding.where, finding.problem) not in problems
    ]


def workers_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The names of the workers that are alive, by Ray's node IDs."""
    return {worker.node_id: worker.name for worker in free_workers(nodes, {})}


def no_room(problem: str) -> Finding:
    return about("resources", problem, "wait until other jobs have ended, or set wait_for_resources: 2h")


def retry_findings(spec: JobSpec, config: Configuration) -> list[Finding]:
    """Findings about checkpoints that lack a part of the training state, so that a retry cannot continue it."""
    sections = ["checkpoint"] if spec.workload == SFT else ["actor_rollout_ref.actor.checkpoint"]
    sections += ["critic.checkpoint"] if config.get("critic.enable", spec.workload == PPO) else []
    findings = []
    for key in [f"{section}.save_contents" for section in sections if spec.retries]:
        saved = as_list(config.get(key, RESUMED))
        absent = ", ".join(part for part in RESUMED if part not in saved)
        if absent:
            text = (
                f"is {', '.join(map(str, saved))}, and the job has retries: {absent} would begin anew in each of them"
            )
            findings.append(about(key, text, f"add {absent}, or set retries: 0", WARNING))
    return findings


def with_queue(job: Job, config: Configuration) -> Job:
    """The job with the TransferQueue of its composed configuration, if its release of verl has one."""
    if not job.plan.transfer_queue:
        return job
    # trainer/main_ppo.py:main: the former trainer has none. Releases after those that are known may have none at all.
    backend = config.get(BACKEND_KEY)
    used = backend is not None and config.get("trainer.use_v1", True) is not False
    backend = str(backend) if used else ""
    plan = replace(
        job.plan,
        transfer_queue=used,
        storage_units=max(0, config.number(UNITS_KEY, VERL_UNITS)) if backend == SIMPLE else 0,
        exclusive_backend="" if backend in SEPARATE_BACKENDS else backend,
    )
    return replace(job, plan=plan)


def without(job: Job, keys: Collection[str]) -> Job:
    """The job without its overrides of these settings."""
    overrides = tuple(override for override in job.plan.overrides if override_key(override) not in keys)
    return replace(job, plan=replace(job.plan, overrides=overrides))


def with_steps(job: Job, config: Configuration, steps: int | None) -> Job:
    """The job with the steps of its rows, batches and epochs. A dataset of its own code may have other rows."""
    if config.get(VAL_ONLY):
        steps = 0
    elif config.get("data.custom_cls.path"):
        steps = None
    return replace(job, plan=replace(job.plan, steps=steps))


def with_loggers(job: Job, config: Configuration) -> Job:
    """The job with TensorBoard's logger, if it works on the nodes."""
    if TENSORBOARD not in as_list(config.get(LOGGER)):
        return job
    overrides = (WITH_TENSORBOARD if override == LOGGERS else override for override in job.plan.overrides)
    return replace(job, plan=replace(job.plan, overrides=tuple(overrides)))


def read_marker(code_path: Path) -> str | None:
    """The MARKER of a snapshot; None if it has none."""
    marker = reading.read_marker(code_path / "mvp_marker.py") or ""
    return marker if STAGED_NAME.fullmatch(marker) else None


def snapshot_findings(code_path: Path, is_command: bool) -> list[Finding]:
    if not code_path.is_dir():
        snapshots = sorted(path.name for path in code_path.parent.glob("*") if path.is_dir() and path.name[0] != ".")
        remedy = "stage it with stage.yml" + (f", or use one that exists: {', '.join(snapshots)}" if snapshots else "")
        return [about("code_path", f"there is no snapshot {code_path}", remedy)]
    if read_marker(code_path) is None:
        remedy = "use a snapshot from stage.yml: a plain directory may change under a running job"
        return [about("code_path", f"{code_path} has no mvp_marker.py with a MARKER", remedy)]
    version = read_verl_version(code_path) or "unknown"
    if profile_of(version) is None and not is_command:
        return [about("code_path", f"{code_path} contains verl {version}, which is not supported", refusal(version))]
    return []


def file_findings(spec: JobSpec) -> list[Finding]:
    """Problems with the files that a JobSpec names, as the head sees them. Links are followed."""
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
    """Whether a required file of an input exists. Every node tells whether it leads out of the shared root."""
    if file.is_file():
        return []
    remedy = f"stage it with stage.yml, copy it into {shared_root_text(str(root))}, or correct {key}"
    if not path.exists():
        siblings = (other.name for other in path.parent.glob("*") if other.name[0] != ".")
        remedy = spelling_hint(path.name, siblings) or remedy
    return [about(key, f"{file} does not exist", remedy)]


def resume_findings(spec: JobSpec, world_size: int) -> tuple[list[Finding], Checkpoint | None]:
    """Findings why a job cannot resume from the job that it names, or the checkpoint to resume from.

    world_size: the number of training processes, one for each GPU. FSDP's shards are for exactly as many.
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
