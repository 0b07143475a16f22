# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of a job on the workers, in Ray actors that take no CPUs.

One worker composes the configuration and checks the whole job, because the files and the packages of the job are there.
All others check their shared root and their network.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..archive.plan import COMMAND
from ..checks.configuration import Configuration
from ..checks.packages import required_verl_findings
from ..checks.paths import check_node
from ..checks.prompts import start_tokenizer_process
from ..checks.request import CheckRequest, Facts
from ..checks.worker import check_worker
from ..common.findings import Finding, about
from ..common.shared_root import USER_CODE_DIR
from ..io.hydra import override_key
from ..jobspec.overrides import DEFAULT_LOGGERS, LOGGER_KEY, TENSORBOARD_LOGGERS
from ..jobspec.plan import Job
from ..jobspec.spec import JobSpec
from ..jobspec.verl_releases import release_of, soften_unknown_release
from ..ray.tasks import Connection
from .composition import Composition, Overrides, compose
from .job_config import JobConfig
from .numbers import config_findings
from .override_effects import (
    PLACEHOLDER,
    estimator_findings,
    owned_findings,
    refusal_finding,
    refused_defaults,
    unread_findings,
)

ANSWER_TIMEOUT_SECONDS = 60.0
# The name of the call that inspects the job; the other calls have the names of their workers.
INSPECTION = ""
SAMPLES_KEY = "trainer.log_val_generations"
SEE_STATUS = "see cluster_status.yml"


@dataclass(frozen=True)
class Inspection:
    """The report of the worker that checks a job."""

    findings: tuple[Finding, ...] = ()
    composition: Composition = field(default_factory=Composition)
    facts: Facts = field(default_factory=Facts)
    python_path: str = ""  # PYTHONPATH as the image of the nodes sets it
    on_node: tuple[Finding, ...] = ()  # of the checks that run on every worker


def inspect_job(
    request: CheckRequest, module: str, overrides: Overrides, tensorboard: str = "", directory: str = ""
) -> Inspection:
    """Compose the configuration of a job, and check everything that it names. Runs on one worker.

    module: the Python module of the trainer, or the program of a command. tensorboard, directory: as for compose().
    """
    image = os.environ.get("PYTHONPATH", "")
    if request.workload == COMMAND:
        path = request.environment.get("PATH") or os.environ.get("PATH")
        remedy = "name a program of the image, or a file under the shared root that may be executed"
        missing = (
            [] if shutil.which(module, path=path) else [about("command", f"workers have no program {module}", remedy)]
        )
        return Inspection(tuple(missing), python_path=image, on_node=tuple(check_node(request)))
    path = ":".join(filter(None, (request.environment.get("PYTHONPATH", ""), *image.split(":"))))
    environment = {**request.environment, **({"PYTHONPATH": path} if path else {})}
    # While another process composes the configuration, this one prepares everything else that the checks need.
    with ThreadPoolExecutor(1) as executor, contextlib.closing(start_tokenizer_process()) as tokenizer:
        user_code = f"{request.shared_root}/{USER_CODE_DIR}"
        composing = executor.submit(
            compose, request.code_path, module, overrides, environment, tensorboard, user_code, directory
        )
        on_node = tuple(check_node(request))
        with contextlib.suppress(ImportError):
            import pyarrow.parquet  # noqa: F401
        composition = composing.result()
        config = None if composition.config is None else Configuration(composition.config)
        request = replace(request, config=config, environment=environment, tokenizer_process=tokenizer)
        findings, facts = check_worker(request)
        findings += required_verl_findings(request.code_path, module)
    return Inspection(tuple(findings), composition, facts, image, on_node)


def ask_nodes(
    spec: JobSpec,
    job: Job,
    version: str,
    workers: Mapping[str, str],
    connect: Callable[[], Connection] = Connection,
) -> Inspection:
    """Check the shared root on all workers, and the job itself on one of them. Returns the findings of all.

    version: that of the snapshot's verl.
    workers: the names of the workers by Ray's node IDs.
    """
    connection = connect()
    if connection.problem:
        return Inspection((about("cluster", connection.problem, SEE_STATUS),))
    request = check_request(spec, job)
    node = min(workers, key=lambda node_id: workers[node_id])
    overrides = [(override_key(override), override) for override in job.plan.overrides]
    # Starting a process takes longer than the checks: one process on each worker, the longest check first.
    tensorboard = TENSORBOARD_LOGGERS if DEFAULT_LOGGERS in job.plan.overrides and not sets_loggers(spec) else ""
    module, directory = (*job.plan.command, job.plan.module)[0], spec.module and job.plan.directory
    started = {INSPECTION: connection.on(node, inspect_job, request, module, overrides, tensorboard, directory or "")}
    others = {node_id: name for node_id, name in workers.items() if node_id != node}
    started |= {name: connection.on(node_id, check_node, request) for node_id, name in others.items()}
    values, problems = connection.results(started, ANSWER_TIMEOUT_SECONDS)
    # The shutdown waits for a quarter of a second, and the end of this process would do the same.
    threading.Thread(target=connection.ray.shutdown, daemon=True).start()
    findings = [
        about("cluster", f"{name or workers[node]} could not check the job: {problem}", SEE_STATUS)
        for name, problem in problems.items()
    ]
    answer: Inspection = values.pop(INSPECTION, None) or Inspection()
    if INSPECTION not in problems:
        composed, plan = answer.composition, job.plan
        size = plan.nnodes, plan.gpus_per_node
        config = JobConfig(composed.config or {}, request.workload, *size, release_of(version) or ())
        dropped = refused_defaults(spec, composed, version)
        refused = [refusal for refusal in composed.errors if refusal.key not in dropped]
        findings += [
            *(refusal_finding(refusal, config, version, composed.unread) for refusal in refused),
            *answer.findings,
        ]
        if composed.config:
            findings += owned_findings(composed, job, request, dropped)
            rules = config_findings(composed.config, request.workload, *size, version, request.environment)
            findings += soften_unknown_release(version, [*rules, *estimator_findings(composed, version)])
            findings += unread_findings(spec, composed.unread, config, version)
        values[workers[node]] = answer.on_node
    return replace(answer, findings=(*findings, *findings_of_nodes(values)))


def sets_loggers(spec: JobSpec) -> bool:
    """Whether a JobSpec says what is logged. TensorBoard is then not added.

    With log_val_generations, verl writes the texts of samples into TensorBoard's files, where nothing masks secrets.
    """
    return not {LOGGER_KEY, SAMPLES_KEY}.isdisjoint(map(override_key, spec.trainer_overrides))


def check_request(spec: JobSpec, job: Job) -> CheckRequest:
    """What the checks on nodes need to know about a job."""
    inputs, reward = spec.inputs, spec.inputs.reward
    # A command has no inputs, so these files do not exist.
    files = [f"{inputs.code_path}/mvp_marker.py", f"{inputs.model}/config.json"]
    files += [f"{inputs.dataset}/train.parquet", f"{inputs.dataset}/val.parquet", *([reward.file] if reward else [])]
    return CheckRequest(
        shared_root=spec.shared_root,
        workload=spec.workload,
        code_path=inputs.code_path,
        model=inputs.model,
        dataset=inputs.dataset,
        reward_file=reward.file if reward else None,
        reward_function=reward.name if reward else "",
        reward_module=reward.module if reward else "",
        environment={
            **job.runtime_env["env_vars"],
            **job.plan.driver_env,
            **dict.fromkeys(spec.secrets, PLACEHOLDER),
        },
        # A node that sees another size than the head has another file system there.
        files={file: Path(file).stat().st_size for file in files if Path(file).is_file()},
        accept=spec.accept,
        debugger=spec.debugger,
        trial_rows=spec.check_reward,
    )


def findings_of_nodes(values: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """The findings of all nodes. Each appears once, with the names of the nodes that report it."""
    nodes: dict[Finding, list[str]] = {}
    for name, findings in sorted(values.items()):
        for finding in findings:
            nodes.setdefault(finding, []).append(name)
    return [replace(finding, problem=f"{', '.join(names)}: {finding.problem}") for finding, names in nodes.items()]
