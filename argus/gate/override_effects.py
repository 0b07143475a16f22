# SPDX-License-Identifier: Apache-2.0
"""Checks what a job's overrides do to the composed configuration.

Findings are about overrides that Hydra refuses, settings that nothing reads, settings that differ from the JobSpec, and
secrets in settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..checks.configuration import Configuration, flatten
from ..checks.request import CheckRequest
from ..common.findings import WARNING, Finding, about
from ..common.shared_root import USER_CODE_DIR
from ..common.text import one_line
from ..io.hydra import override_key
from ..jobspec.capacity import pool_overrides
from ..jobspec.overrides import HYDRA_DIRECTORY
from ..jobspec.owned import ESTIMATOR, OVERRIDES, OWNED_OVERRIDES, about_override, owned_remedy, owned_values
from ..jobspec.plan import Job
from ..jobspec.spec import JobSpec, RewardFunction
from ..jobspec.verl_releases import Profile, profile_of
from .composition import Composition, Refusal
from .config_rl import absent_parts
from .job_config import JobConfig

# The ratio of "save_frequency" and "save_freq". Most names with a lower ratio are other settings.
MIN_SIMILARITY = 0.75
MAX_HINTS = 3
# Stands for each secret on the nodes; the values stay on the head. No configuration contains it by chance.
PLACEHOLDER = "placeholder-of-a-secret"


def hint_for(key: str, job: JobConfig, profile: Profile | None, unread: Collection[str] = ()) -> str:
    """The remedy for a key that Hydra refuses or that nothing reads: a similar setting; "" if none is close enough.

    It names only settings that this release has, that the job reads, and that would not be refused as well.
    unread: keys of the configuration that nothing reads.
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
    """A finding about an estimator of advantages that nothing registers."""
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
