# SPDX-License-Identifier: Apache-2.0
"""The gate: runs all checks of a job before its submission, and plans the job. Runs on the head."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..archive.plan import COMMAND, VAL_ONLY
from ..checks.paths import named_files
from ..checks.request import Configuration, Facts, as_list, read_verl_version
from ..common.findings import NOTE, WARNING, Finding, about, errors
from ..common.shared_root import USER_CODE_DIR, is_under_root
from ..io.hydra import override_key
from ..jobspec.capacity import Cluster, driver_findings, size_findings, size_of, storage_findings
from ..jobspec.overrides import DEFAULT_LOGGERS, LOGGER_KEY, TENSORBOARD_LOGGERS, VERL_UNITS
from ..jobspec.owned import OVERRIDES, repetition_notes
from ..jobspec.plan import Job, plan_job
from ..jobspec.spec import JobSpec
from ..jobspec.spec_checks import accelerator_findings
from ..jobspec.verl_releases import PPO, SFT, profile_of
from ..queue.demand import UNITS_KEY, Demand
from ..queue.room import Room, read_placed_ids
from ..ray.api import RayHead
from ..ray.records import free_workers
from .head import file_findings, read_marker, resume_findings
from .nodes import Inspection, ask_nodes, refused_defaults
from .pools import pool_findings, used_pools

TENSORBOARD = "tensorboard"
SIMPLE_BACKEND, BACKEND_KEY = "SimpleStorage", "transfer_queue.backend.storage_backend"
# The parts of a checkpoint that verl's trainers load.
RESUMED_PARTS = ("model", "optimizer", "extra")
# Backends of TransferQueue that several jobs can use at once. Others start services with a fixed port or name: a second
# job ends those of the first (transfer_queue/storage/bootstrap: `pkill mooncake_master`), or shares its samples.
SHAREABLE_BACKENDS = (SIMPLE_BACKEND, "RayStore")
AskNodes = Callable[[JobSpec, Job, str, Mapping[str, str]], Inspection]


@dataclass(frozen=True)
class GateResult:
    """What the gate has found out about a job."""

    findings: tuple[Finding, ...]
    job: Job | None = None  # None if it could not be planned; then there are findings
    checkpoint: str = ""  # the path of the checkpoint that the job resumes from; "" for none
    capacity_problem: str = ""  # why the cluster has no capacity for the job now; "" if it has
    room: Room = field(default_factory=Room)  # the free resources, for the last check right before the submission
    resolved: str = ""  # the composed configuration as YAML; "" if there is none
    facts: Facts = field(default_factory=Facts)
    files: Mapping[str, str] = field(default_factory=dict)  # the paths of users' files, by the settings that name them


def examine(
    spec: JobSpec, submission_id: str, head: RayHead, ask: AskNodes = ask_nodes, clock: Callable[[], float] = time.time
) -> GateResult:
    """Check and plan a job whose JobSpec has no findings. Raises RayApiError if the head does not answer."""
    started = clock()
    placed = read_placed_ids(head, started)
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
    resume_problems, checkpoint = resume_findings(spec, size_of(spec, cluster).gpus)
    findings += resume_problems
    # Only SFT needs no data for validation; file_findings reports a file that is missing.
    has_validation_data = spec.workload != SFT or Path(spec.inputs.dataset, "val.parquet").exists()
    job = plan_job(spec, cluster, read_marker(code_path) or "", submission_id, profile, checkpoint, has_validation_data)
    # The present capacity does not matter to a job that can never run.
    can_run = not errors(findings)
    answers = ask(spec, job, profile.version if profile else "", workers_of(nodes))
    findings += new_findings(answers.findings, findings)
    user_code = f"{spec.shared_root}/{USER_CODE_DIR}"
    files = {f"command: {path}": path for path in spec.command if is_under_root(path, user_code)}
    if answers.composition.config is not None:
        config = Configuration(answers.composition.config)
        if profile and (dropped := refused_defaults(spec, answers.composition, profile.version)):
            job = without_overrides(job, dropped)
            text = f"{spec.module or f'verl {profile.version}'} has no {', '.join(dropped)}, which the job does not set"
            findings.append(about("module" if spec.module else "code_path", text, "", NOTE))
        job = with_steps(with_loggers(with_queue(job, config), config), config, answers.facts.steps)
        pools = used_pools(config, bool(spec.module))
        job = replace(job, plan=replace(job.plan, pools=pools))
        findings += (pool_problems := pool_findings(spec, pools, free_workers(nodes, {}), job.plan))
        can_run = can_run and not pool_problems
        findings += retry_findings(spec, config)
        files = named_files(config, spec.shared_root)
        user_module = Path(user_code, *(spec.module or "").split(".")).with_suffix(".py")
        files |= {"module": str(user_module)} if spec.module and user_module.is_file() else {}
    if can_run:
        findings += (storage_problems := storage_findings(spec, cluster, job.plan.storage_units))
        can_run = not storage_problems
    room = Room(tuple(head.capacity(started)), placed) if can_run else Room()
    capacity_problem = room.problem(submission_id, Demand.of(job.plan), head.jobs()) if can_run else ""
    if capacity_problem and not spec.wait_for_resources and not spec.depends_on:
        findings.append(no_room_finding(capacity_problem))
    # With errors, it is not certain that the job has these values.
    findings += [] if errors(findings) else repetition_notes(spec)
    return GateResult(
        findings=tuple(findings),
        job=job.with_python_path(answers.python_path),
        checkpoint=str(checkpoint.path) if checkpoint else "",
        capacity_problem=capacity_problem,
        room=room,
        resolved=answers.composition.yaml,
        facts=replace(answers.facts, workers=sorted(workers_of(nodes).values())),
        files=files,
    )


def new_findings(findings: Iterable[Finding], reported: Iterable[Finding]) -> list[Finding]:
    """The findings that are not about an override with a reported error, and whose problem was not reported."""
    reported = list(reported)
    overrides = {finding.key for finding in errors(reported) if finding.key.startswith(f"{OVERRIDES}.")}
    problems = {(finding.where, finding.problem) for finding in reported}
    return [
        finding
        for finding in findings
        if finding.key not in overrides and (finding.where, finding.problem) not in problems
    ]


def workers_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The names of the workers that are alive, by Ray's node IDs."""
    return {worker.node_id: worker.name for worker in free_workers(nodes, {})}


def no_room_finding(problem: str) -> Finding:
    return about("resources", problem, "wait until other jobs have ended, or set wait_for_resources: 2h")


def retry_findings(spec: JobSpec, config: Configuration) -> list[Finding]:
    """Findings about a job with retries whose checkpoints lack a part of the training state."""
    sections = ["checkpoint"] if spec.workload == SFT else ["actor_rollout_ref.actor.checkpoint"]
    sections += ["critic.checkpoint"] if config.get("critic.enable", spec.workload == PPO) else []
    findings = []
    for key in [f"{section}.save_contents" for section in sections if spec.retries]:
        saved = as_list(config.get(key, RESUMED_PARTS))
        absent = ", ".join(part for part in RESUMED_PARTS if part not in saved)
        if absent:
            text = (
                f"is {', '.join(map(str, saved))}, and the job has retries: {absent} would begin anew in each of them"
            )
            findings.append(about(key, text, f"add {absent}, or set retries: 0", WARNING))
    return findings


def with_queue(job: Job, config: Configuration) -> Job:
    """The job with the TransferQueue that its composed configuration asks for."""
    if not job.plan.transfer_queue:
        return job
    # trainer/main_ppo.py:main: the former trainer has none. Releases after those that are known may have none at all.
    backend = config.get(BACKEND_KEY)
    is_used = backend is not None and config.get("trainer.use_v1", True) is not False
    backend = str(backend) if is_used else ""
    plan = replace(
        job.plan,
        transfer_queue=is_used,
        storage_units=max(0, config.number(UNITS_KEY, VERL_UNITS)) if backend == SIMPLE_BACKEND else 0,
        exclusive_backend="" if backend in SHAREABLE_BACKENDS else backend,
    )
    return replace(job, plan=plan)


def without_overrides(job: Job, keys: Collection[str]) -> Job:
    overrides = tuple(override for override in job.plan.overrides if override_key(override) not in keys)
    return replace(job, plan=replace(job.plan, overrides=overrides))


def with_steps(job: Job, config: Configuration, steps: int | None) -> Job:
    """The job with its number of steps; None with a user's dataset class, which may have other rows than its files."""
    if config.get(VAL_ONLY):
        steps = 0
    elif config.get("data.custom_cls.path"):
        steps = None
    return replace(job, plan=replace(job.plan, steps=steps))


def with_loggers(job: Job, config: Configuration) -> Job:
    """The job with TensorBoard as a further logger, if the nodes composed the configuration with it."""
    if TENSORBOARD not in as_list(config.get(LOGGER_KEY)):
        return job
    overrides = (TENSORBOARD_LOGGERS if override == DEFAULT_LOGGERS else override for override in job.plan.overrides)
    return replace(job, plan=replace(job.plan, overrides=tuple(overrides)))
