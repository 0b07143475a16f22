# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of a job on the workers, in Ray actors that take no CPUs.

One worker composes the configuration and checks the whole job, because the files and the packages of the job are there.
All others check their shared root and their network. Findings are also about what overrides do to the configuration:
those that Hydra refuses, settings that nothing reads or that differ from the JobSpec, and secrets in settings.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..archive.plan import COMMAND
from ..checks.packages import required_verl_findings
from ..checks.paths import check_node
from ..checks.prompts import start_tokenizer_process
from ..checks.request import CheckRequest, Configuration, Facts, flatten
from ..checks.worker import check_worker
from ..common.findings import WARNING, Finding, about
from ..common.shared_root import USER_CODE_DIR
from ..common.text import one_line
from ..io.hydra import override_key
from ..jobspec.capacity import pool_overrides
from ..jobspec.overrides import DEFAULT_LOGGERS, HYDRA_DIRECTORY, LOGGER_KEY, TENSORBOARD_LOGGERS
from ..jobspec.owned import ESTIMATOR, OVERRIDES, OWNED_OVERRIDES, about_override, owned_remedy, owned_values
from ..jobspec.plan import Job
from ..jobspec.spec import JobSpec, RewardFunction
from ..jobspec.verl_releases import Profile, profile_of, release_of, soften_unknown_release
from ..ray.tasks import Connection
from .composition import Composition, Overrides, Refusal, compose
from .config import JobConfig
from .config_rl import absent_parts
from .numbers import config_findings

ANSWER_TIMEOUT_SECONDS = 60.0
# The name of the call that inspects the job; the other calls have the names of their workers.
INSPECTION = ""
SAMPLES_KEY = "trainer.log_val_generations"
SEE_STATUS = "see cluster_status.yml"
# The ratio of "save_frequency" and "save_freq". Most names with a lower ratio are other settings.
MIN_SIMILARITY = 0.75
MAX_HINTS = 3
# Stands for each secret on the nodes; the values stay on the head. No configuration contains it by chance.
PLACEHOLDER = "placeholder-of-a-secret"


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
    spec: JobSpec, job: Job, version: str, workers: Mapping[str, str], connect: Callable[[], Connection] = Connection
) -> Inspection:
    """Check the shared root on all workers, and the job itself on one of them. Returns the findings of all.

    version: that of the snapshot's verl. workers: their names by Ray's node IDs.
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
    started = {
        INSPECTION: connection.start_on(node, inspect_job, request, module, overrides, tensorboard, directory or "")
    }
    others = {node_id: name for node_id, name in workers.items() if node_id != node}
    started |= {name: connection.start_on(node_id, check_node, request) for node_id, name in others.items()}
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
    """Whether a JobSpec says what is logged. TensorBoard is then not added."""
    # With log_val_generations, verl writes texts of samples into TensorBoard's files, where nothing masks secrets.
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
        environment={**job.runtime_env["env_vars"], **job.plan.driver_env, **dict.fromkeys(spec.secrets, PLACEHOLDER)},
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


def hint_for(key: str, job: JobConfig, profile: Profile | None, unread: Collection[str] = ()) -> str:
    """The remedy for a key that Hydra refuses or that nothing reads: a similar setting; "" if none is close enough.

    It names only settings that this release has, that the job reads, and that would not be refused as well.
    """
    if key in JobSpec.paths().values():
        return "it is a key of the JobSpec: write it beside trainer_overrides"
    names = dict(flatten(job.values, enabled_only=False))
    settings = [name for name in names if "[" not in name and name not in unread]
    settings += [] if "." in key else JobSpec.paths().values()
    similar = similar_settings(key, [name for name in settings if not name.startswith(tuple(absent_parts(job)))])
    refused = {name: owned_remedy(name) for name in similar}
    if owned := next(filter(None, refused.values()), ""):
        return owned
    refused = {name: (profile and profile.unread_hint(job.workload, name)) or "" for name in similar}
    accepted = [name for name in similar if not refused[name]][:MAX_HINTS]
    if accepted:
        return f"did you mean {' or '.join(accepted)}?"
    return next(iter(refused.values()), "")


def similar_settings(key: str, settings: list[str]) -> list[str]:
    """The settings that end with a key; else those of its section with a similar name; else those of the same name."""
    section, _dot, name = key.rpartition(".")
    if same_end := [setting for setting in settings if setting.endswith(f".{key}")]:
        return same_end
    siblings = {setting.rpartition(".")[2]: setting for setting in settings if setting.rpartition(".")[0] == section}
    if similar := difflib.get_close_matches(name, siblings, MAX_HINTS, MIN_SIMILARITY):
        return [siblings[setting] for setting in similar]
    same_name = [setting for setting in settings if setting.endswith(f".{name}")]
    return same_name if len(same_name) <= MAX_HINTS else []


def refused_defaults(spec: JobSpec, composed: Composition, version: str) -> list[str]:
    """The keys of default overrides that the configuration of another trainer, or of a newer verl, does not have."""
    profile = profile_of(version)
    is_known = not spec.module and not (profile and profile.is_guess)
    keys = {override_key(override) for override in spec.trainer_overrides}
    return [] if is_known else [item.key for item in composed.errors if item.is_unknown_key and item.key not in keys]


def owned_findings(
    composed: Composition, job: Job, request: CheckRequest, missing: Collection[str] = ()
) -> list[Finding]:
    """Findings about settings that the JobSpec controls and that have another value, and about secrets in settings.

    missing: settings that the configuration does not have.
    """
    file = request.reward_file
    expected = owned_values(
        request.workload,
        job.archive,
        (job.plan.nnodes, job.plan.gpus_per_node),
        RewardFunction(file, request.reward_function, request.reward_module) if file else None,
    )
    expected |= pool_overrides(job.plan.pools)
    settings = Configuration(composed.config or {})
    findings = []
    for key, value in expected.items():
        actual = without_nulls(settings.get(key))
        if actual != value and key not in missing:
            problem = f"is {value_text(actual)}, but the JobSpec makes it {value_text(value)}"
            remedy = OWNED_OVERRIDES.get(key, "set resources.pools")
            findings.append(about(key, problem, f"correct {OVERRIDES}: {remedy}"))
    output = f"{job.archive}/{HYDRA_DIRECTORY}"
    if composed.output.removesuffix("/.") != output:
        findings.append(about("hydra.run.dir", f"is not {output}", f"correct {OVERRIDES}: {OWNED_OVERRIDES['hydra']}"))
    secret = [key for key, value in flatten(composed.config, enabled_only=False) if PLACEHOLDER in f"{key} {value}"]
    # A text may also have become a key.
    for key in dict.fromkeys(key.partition(PLACEHOLDER)[0].rstrip(".") for key in secret):
        remedy = "remove it: configurations are archived; the trainer finds secrets in its environment"
        findings.append(about(key, "contains the value of a secret", remedy))
    return findings


def without_nulls(value: Any) -> Any:
    """A setting without the parts that are null; None if nothing is left."""
    if not isinstance(value, Mapping):
        return value
    return {name: part for name, part in value.items() if without_nulls(part) is not None} or None


def value_text(value: Any) -> str:
    return "not set" if value is None else one_line(value, 200)


def unread_findings(spec: JobSpec, added: Sequence[str], job: JobConfig, version: str) -> Iterator[Finding]:
    """Findings about overrides without effect: nothing reads the key, or the job does not have that part."""
    for key in dict.fromkeys(map(override_key, spec.trainer_overrides)):
        reason = next((why for part, why in absent_parts(job).items() if key.startswith(part)), "")
        if key in added:
            remedy = hint_for(key, job, profile_of(version), added) or "remove it"
            yield about_override(key, f"is not read by verl {version}", remedy, WARNING)
        elif reason and not key.endswith((".enable", ".enabled")):
            yield about_override(key, f"is not read: {reason}", "remove it", WARNING)


def estimator_findings(composed: Composition, version: str) -> Iterator[Finding]:
    if composed.estimators:
        name = str(Configuration(composed.config or {}).get(ESTIMATOR))
        problem = f"is {one_line(name, 60)}, which neither verl {version} nor a file in {USER_CODE_DIR} registers"
        near = difflib.get_close_matches(name, composed.estimators, MAX_HINTS) or composed.estimators
        yield about(ESTIMATOR, problem, f"choose one of these: {', '.join(near)}")


def refusal_finding(refusal: Refusal, job: JobConfig, version: str, unread: Sequence[str] = ()) -> Finding:
    """The finding about an override that Hydra refuses. unread: keys of the configuration that nothing reads."""
    problem, remedy = one_line(refusal.error), "correct it; config/ beside the snapshot's trainer defines all keys"
    if refusal.is_unknown_key:
        remedy = hint_for(refusal.key, job, profile_of(version), unread) or remedy
    return about_override(refusal.key, problem, remedy) if refusal.key else about(OVERRIDES, problem, remedy)
