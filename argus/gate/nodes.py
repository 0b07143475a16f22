# SPDX-License-Identifier: Apache-2.0
"""The checks of a job that run on nodes, in actors of Ray without CPUs."""

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
from ..checks.common import CheckRequest, Configuration, Facts, leaves
from ..checks.paths import check_node
from ..checks.prompts import tokenizer_process
from ..checks.worker import check_worker, required_verl_findings
from ..common.findings import WARNING, Finding, about
from ..common.shared_root import USER_CODE
from ..common.text import one_line
from ..io.hydra import override_key
from ..jobspec.capacity import pool_overrides
from ..jobspec.overrides import HYDRA_DIRECTORY, LOGGER, LOGGERS, WITH_TENSORBOARD
from ..jobspec.owned import ESTIMATOR, OVERRIDES, OWNED_OVERRIDES, about_override, owned_todo, owned_values
from ..jobspec.plan import Job
from ..jobspec.spec import JobSpec, RewardFunction
from ..jobspec.verl_releases import Profile, as_known, profile_of, release_of
from ..ray.tasks import Connection
from .composition import Composition, Overrides, Refusal, compose
from .config import JobConfig
from .config_rl import absent_parts
from .numbers import config_findings

# What to do about an override that Hydra refuses, or that nothing reads. A hint is a setting that exists in this
# release, that the job reads, and that is not refused next.

# Of "save_frequency" and "save_freq". Most names with a lower ratio are other settings.
SIMILAR = 0.75
MOST_HINTS = 3


def hint(key: str, job: JobConfig, profile: Profile | None, unread: Collection[str] = ()) -> str:
    """What to write instead of a key of the trainer; "" if nothing is close enough.

    unread: keys of the configuration that nothing reads.
    """
    if key in JobSpec.paths().values():
        return "it is a key of the JobSpec: write it beside trainer_overrides"
    known = [name for name, _value in leaves(job.values, used=False) if "[" not in name and name not in unread]
    known += [] if "." in key else JobSpec.paths().values()
    found = close_settings(key, [name for name in known if not name.startswith(tuple(absent_parts(job)))])
    refused = {name: owned_todo(name) for name in found}
    if owned := next(filter(None, refused.values()), ""):
        return owned
    refused = {name: (profile and profile.unread_hint(job.workload, name)) or "" for name in found}
    accepted = [name for name in found if not refused[name]][:MOST_HINTS]
    if accepted:
        return f"did you mean {' or '.join(accepted)}?"
    return next(iter(refused.values()), "")


def close_settings(key: str, known: list[str]) -> list[str]:
    """The settings that end like a key, or have a similar name in the same section, or the same one in another."""
    section, _dot, name = key.rpartition(".")
    if same_end := [each for each in known if each.endswith(f".{key}")]:
        return same_end
    siblings = {each.rpartition(".")[2]: each for each in known if each.rpartition(".")[0] == section}
    if similar := difflib.get_close_matches(name, siblings, MOST_HINTS, SIMILAR):
        return [siblings[each] for each in similar]
    same_name = [each for each in known if each.endswith(f".{name}")]
    return same_name if len(same_name) <= MOST_HINTS else []


# The checks of a job that run on nodes, in actors of Ray without CPUs.
#
# The job is composed, and its files are read, where it will run.

ANSWER_SECONDS = 60.0
# The name of the call that inspects the job, besides the names of the workers.
INSPECTION = ""
SAMPLES = "trainer.log_val_generations"
SEE_STATUS = "see cluster_status.yml"
# The value of each secret on the nodes; the values themselves stay on the head. No configuration contains it by chance.
PLACEHOLDER = "placeholder-of-a-secret"


@dataclass(frozen=True)
class Inspection:
    """What a worker reports about a job.

    python_path: PYTHONPATH as the image of the nodes sets it.
    on_node: what every worker is checked for.
    """

    findings: tuple[Finding, ...] = ()
    composition: Composition = field(default_factory=Composition)
    facts: Facts = field(default_factory=Facts)
    python_path: str = ""
    on_node: tuple[Finding, ...] = ()


def inspect_job(
    request: CheckRequest, module: str, overrides: Overrides, tensorboard: str = "", directory: str = ""
) -> Inspection:
    """Compose the configuration of the trainer `module`, and check everything that it names.

    module: the program of a command. tensorboard, directory: as for compose().
    """
    image = os.environ.get("PYTHONPATH", "")
    if request.workload == COMMAND:
        path = request.environment.get("PATH") or os.environ.get("PATH")
        todo = "name a program of the image, or a file under the shared root that may be executed"
        missing = (
            [] if shutil.which(module, path=path) else [about("command", f"workers have no program {module}", todo)]
        )
        return Inspection(tuple(missing), python_path=image, on_node=tuple(check_node(request)))
    path = ":".join(filter(None, (request.environment.get("PYTHONPATH", ""), *image.split(":"))))
    environment = {**request.environment, **({"PYTHONPATH": path} if path else {})}
    # A process of its own composes, and the checks need its answer: meanwhile, what they need otherwise.
    with ThreadPoolExecutor(1) as beside, contextlib.closing(tokenizer_process()) as tokenizer:
        user_code = f"{request.shared_root}/{USER_CODE}"
        composing = beside.submit(
            compose, request.code_path, module, overrides, environment, tensorboard, user_code, directory
        )
        on_node = tuple(check_node(request))
        with contextlib.suppress(ImportError):
            import pyarrow.parquet  # noqa: F401
        composition = composing.result()
        config = None if composition.config is None else Configuration(composition.config)
        request = replace(request, config=config, environment=environment, tokenizer_process=tokenizer)
        found, facts = check_worker(request)
        found += required_verl_findings(request.code_path, module)
    return Inspection(tuple(found), composition, facts, image, on_node)


def ask_nodes(
    spec: JobSpec,
    job: Job,
    version: str,
    workers: Mapping[str, str],
    connect: Callable[[], Connection] = Connection,
) -> Inspection:
    """Check the shared root on all workers, and the job itself on one of them. The findings are those of all.

    version: of the snapshot's verl.
    workers: the names of the workers by Ray's node IDs.
    """
    connection = connect()
    if connection.problem:
        return Inspection((about("cluster", connection.problem, SEE_STATUS),))
    request = check_request(spec, job)
    one = min(workers, key=lambda node_id: workers[node_id])
    overrides = [(override_key(override), override) for override in job.plan.overrides]
    # Each starts a process, which takes longer than the checks: one on each worker, the longest first.
    tensorboard = WITH_TENSORBOARD if LOGGERS in job.plan.overrides and not sets_loggers(spec) else ""
    module, directory = (*job.plan.command, job.plan.module)[0], spec.module and job.plan.directory
    started = {INSPECTION: connection.on(one, inspect_job, request, module, overrides, tensorboard, directory or "")}
    others = {node_id: name for node_id, name in workers.items() if node_id != one}
    started |= {name: connection.on(node_id, check_node, request) for node_id, name in others.items()}
    values, problems = connection.results(started, ANSWER_SECONDS)
    # It waits for a quarter of a second; this process has other things to do, or its end does the same.
    threading.Thread(target=connection.ray.shutdown, daemon=True).start()
    found = [
        about("cluster", f"{name or workers[one]} could not check the job: {problem}", SEE_STATUS)
        for name, problem in problems.items()
    ]
    answer: Inspection = values.pop(INSPECTION, None) or Inspection()
    if INSPECTION not in problems:
        composed, plan = answer.composition, job.plan
        size = plan.nnodes, plan.gpus_per_node
        config = JobConfig(composed.config or {}, request.workload, *size, release_of(version) or ())
        dropped = refused_defaults(spec, composed, version)
        refused = [each for each in composed.errors if each.key not in dropped]
        found += [
            *(refusal_finding(each, config, version, composed.unread) for each in refused),
            *answer.findings,
        ]
        if composed.config:
            found += owned_findings(composed, job, request, dropped)
            rules = config_findings(composed.config, request.workload, *size, version, request.environment)
            found += as_known(version, [*rules, *estimator_findings(composed, version)])
            found += unread_findings(spec, composed.unread, config, version)
        values[workers[one]] = answer.on_node
    return replace(answer, findings=(*found, *findings_of_nodes(values)))


def sets_loggers(spec: JobSpec) -> bool:
    """Whether a JobSpec says what is logged. Of samples, verl writes the texts into files of TensorBoard, unmasked."""
    return not {LOGGER, SAMPLES}.isdisjoint(map(override_key, spec.trainer_overrides))


def check_request(spec: JobSpec, job: Job) -> CheckRequest:
    inputs, reward = spec.inputs, spec.inputs.reward
    # Those of a command, which has no inputs, do not exist.
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


def refused_defaults(spec: JobSpec, composed: Composition, version: str) -> list[str]:
    """The settings of every job that the configuration of another module, or of a newer verl, does not have."""
    profile = profile_of(version)
    is_known = not spec.module and not (profile and profile.is_guess)
    given = {override_key(each) for each in spec.trainer_overrides}
    return [] if is_known else [each.key for each in composed.errors if each.is_unknown_key and each.key not in given]


def owned_findings(
    composed: Composition, job: Job, request: CheckRequest, missing: Collection[str] = ()
) -> list[Finding]:
    """Settings with another value than the JobSpec gives them, however that was written, and secrets in settings.

    missing: those that the configuration does not have.
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
    found = []
    for key, value in expected.items():
        actual = without_nulls(settings.get(key))
        if actual != value and key not in missing:
            what = f"is {shortened(actual)}, but the JobSpec makes it {shortened(value)}"
            todo = OWNED_OVERRIDES.get(key, "set resources.pools")
            found.append(about(key, what, f"correct {OVERRIDES}: {todo}"))
    output = f"{job.archive}/{HYDRA_DIRECTORY}"
    if composed.output.removesuffix("/.") != output:
        found.append(about("hydra.run.dir", f"is not {output}", f"correct {OVERRIDES}: {OWNED_OVERRIDES['hydra']}"))
    secret = [key for key, value in leaves(composed.config, used=False) if PLACEHOLDER in f"{key} {value}"]
    # A text may also have become a key.
    for key in dict.fromkeys(key.partition(PLACEHOLDER)[0].rstrip(".") for key in secret):
        todo = "remove it: configurations are archived; the trainer finds secrets in its environment"
        found.append(about(key, "contains the value of a secret", todo))
    return found


def without_nulls(value: Any) -> Any:
    """A setting without parts that have no value; None if nothing is left."""
    if not isinstance(value, Mapping):
        return value
    return {name: part for name, part in value.items() if without_nulls(part) is not None} or None


def shortened(value: Any) -> str:
    return "not set" if value is None else one_line(value, 200)


def unread_findings(spec: JobSpec, added: Sequence[str], job: JobConfig, version: str) -> Iterator[Finding]:
    """Overrides that change nothing: of keys that nothing reads, and of parts that the job does not have."""
    for key in dict.fromkeys(map(override_key, spec.trainer_overrides)):
        reason = next((why for part, why in absent_parts(job).items() if key.startswith(part)), "")
        if key in added:
            todo = hint(key, job, profile_of(version), added) or "remove it"
            yield about_override(key, f"is not read by verl {version}", todo, WARNING)
        elif reason and not key.endswith((".enable", ".enabled")):
            yield about_override(key, f"is not read: {reason}", "remove it", WARNING)


def estimator_findings(composed: Composition, version: str) -> Iterator[Finding]:
    if composed.estimators:
        name = str(Configuration(composed.config or {}).get(ESTIMATOR))
        what = f"is {one_line(name, 60)}, which neither verl {version} nor a file in {USER_CODE} registers"
        near = difflib.get_close_matches(name, composed.estimators, MOST_HINTS) or composed.estimators
        yield about(ESTIMATOR, what, f"choose one of these: {', '.join(near)}")


def refusal_finding(refusal: Refusal, job: JobConfig, version: str, unread: Sequence[str] = ()) -> Finding:
    what, todo = one_line(refusal.error), "correct it; config/ beside the snapshot's trainer defines all keys"
    if refusal.is_unknown_key:
        todo = hint(refusal.key, job, profile_of(version), unread) or todo
    return about_override(refusal.key, what, todo) if refusal.key else about(OVERRIDES, what, todo)


def findings_of_nodes(values: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """The findings of all nodes. Each appears once, with the names of its nodes."""
    nodes: dict[Finding, list[str]] = {}
    for name, found in sorted(values.items()):
        for finding in found:
            nodes.setdefault(finding, []).append(name)
    return [replace(finding, what=f"{', '.join(names)}: {finding.what}") for finding, names in nodes.items()]
