# SPDX-License-Identifier: Apache-2.0
"""Settings of the trainer that the JobSpec, the archive or the launcher controls, and findings about their overrides.

The checks of overrides only find errors early. There are many ways to write a setting, so the gate also compares the
composed configuration with `owned_values`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..common.findings import ERROR, NOTE, Finding, about
from ..common.shared_root import archive_path
from ..common.text import one_line
from ..io.hydra import override_key, override_text
from .environment import form_of_secret, repeatable_variables
from .spec import JobSpec, RewardFunction
from .verl_releases import GRPO, REWARD_FUNCTION, SFT

# The key of a finding about one override is `trainer_overrides.<key of the override>`.
OVERRIDES = "trainer_overrides"
REPEATED = "is what the job has anyway"
JOINS = "the job joins an existing cluster"
LOCAL_DIR, ESTIMATOR = "trainer.default_local_dir", "algorithm.adv_estimator"
# ray.init: "When connecting to an existing cluster, num_cpus and num_gpus must not be provided."
RAY_INIT = {
    "num_cpus": f"remove it: {JOINS}, which knows its CPUs",
    "address": f"remove it: {JOINS}",
    "runtime_env": "set env_vars or secrets; worker_process_setup_hook is that of the job's secrets and its queue",
    "namespace": "remove it: every job has a namespace of its own in Ray, and would collide with others in this one",
}
# The settings that overrides cannot change, each with the remedy for an override.
OWNED_OVERRIDES = {
    "trainer.nnodes": "set resources.nnodes",
    "trainer.n_gpus_per_node": "set resources.gpus_per_node",
    LOCAL_DIR: "remove it; with a submission_id, it may repeat <shared_root>/jobs/<submission_id>/checkpoints",
    "custom_reward_function.path": "set reward_fn_path; verl 0.9 silently ignores this key",
    "custom_reward_function.name": "set reward_fn_path: FILE:FUNCTION; verl 0.9 silently ignores this key",
    f"{REWARD_FUNCTION}.path": "set reward_fn_path",
    f"{REWARD_FUNCTION}.name": "set reward_fn_path: FILE:FUNCTION",
    **{f"ray_kwargs.ray_init.{name}": remedy for name, remedy in RAY_INIT.items()},
    # Hydra writes its files into the archive.
    "hydra": "remove it: Hydra's files belong in the job's archive",
}
# Options of Hydra's command line that only choose another configuration of the same snapshot.
CONFIG_OPTIONS = ("--config-name", "-cn", "--config-path", "-cp")
SEARCHPATH_KEY = "hydra.searchpath"
# Resolvers that read nothing but the configuration. OmegaConf evaluates what oc.create and oc.decode make of a text, so
# these are not among them.
HARMLESS_RESOLVERS = ("oc.select", "oc.deprecated", "oc.dict.keys", "oc.dict.values")
# The name of an interpolation, up to its arguments, its end, or another interpolation.
INTERPOLATION = re.compile(r"\$\{([^${}:]*)(.?)", re.DOTALL)


def about_override(override: str, problem: str, remedy: str, severity: str = ERROR) -> Finding:
    """A finding about one override, named by its key."""
    return Finding(f"{OVERRIDES}: {override}", problem, remedy, severity, key=f"{OVERRIDES}.{override}")


def override_findings(spec: JobSpec) -> Iterator[Finding]:
    """Findings about overrides that set a key twice, an owned setting or Hydra's options, or that contain secrets."""
    yield from repetition_findings(spec.trainer_overrides)
    repeatable = repeatable_values(spec)
    for override in spec.trainer_overrides:
        key = override_key(override)
        remedy = "" if repeats_value(override, repeatable) else owned_remedy(override)
        resolver = foreign_resolver(override)
        if key.startswith("-") and key not in CONFIG_OPTIONS:
            yield about_override(key, "is an option of Hydra's command line", "give overrides: key=value")
        elif remedy:
            yield about_override(key, "is controlled by the JobSpec", remedy)
        elif resolver:
            problem = f"contains an interpolation of {resolver}, which may read the environment"
            yield about_override(key, problem, "name a secret in secrets: the trainer finds it in its environment")
        elif form := form_of_secret(override):
            yield about_override(key, f"contains {form}, readable in the archive and in logs", "use secrets")


def repeatable_values(spec: JobSpec) -> dict[str, str]:
    """The owned settings that overrides may repeat, with their values; "" for a number that the cluster decides."""
    values = {"trainer.nnodes": str(spec.nnodes or ""), "trainer.n_gpus_per_node": str(spec.gpus_per_node or "")}
    if spec.workload != SFT:
        values[ESTIMATOR] = default_estimator(spec.workload)
    if spec.submission_id:
        values[LOCAL_DIR] = checkpoint_path(archive_path(spec.shared_root, spec.submission_id))
    return values


def default_estimator(workload: str) -> str:
    return "grpo" if workload == GRPO else "gae"


def checkpoint_path(archive: str) -> str:
    return f"{archive}/checkpoints"


def repeats_value(override: str, repeatable: Mapping[str, str]) -> bool:
    """Whether an override sets a setting to the value that it has anyway, see `repeatable_values`."""
    key, value = override_key(override), override_text(override)
    if key not in repeatable or override.lstrip().startswith("~"):
        return False
    return value == repeatable[key] if repeatable[key] else value.isdigit()


def repetition_notes(spec: JobSpec) -> Iterator[Finding]:
    """Notes on settings and variables that have no effect, because the job has these values anyway."""
    repeatable = repeatable_values(spec)
    for override in spec.trainer_overrides:
        if repeats_value(override, repeatable):
            yield about_override(override_key(override), REPEATED, "", NOTE)
    for name in repeatable_variables(spec.shared_root):
        if name in spec.env_vars:
            yield about(f"env_vars.{name}", REPEATED, "", NOTE)


def repetition_findings(overrides: Sequence[str]) -> Iterator[Finding]:
    """Findings about keys that are set more than once. To replace a group, one deletes a key and adds it again."""
    values: dict[str, list[str]] = {}
    for override in overrides:
        if not override.lstrip().startswith(("~", "-")):
            # Each package of a group is a setting of its own: group@package=name.
            values.setdefault(override.partition("=")[0].strip().lstrip("+"), []).append(override_text(override))
    for name, texts in values.items():
        if len(texts) > 1:
            shown = " and ".join(one_line(value, 60) or "nothing" for value in texts)
            remedy = "keep one of them: Hydra takes the last"
            yield about_override(override_key(f"{name}="), f"is set {len(texts)} times, to {shown}", remedy)


def owned_remedy(override: str) -> str:
    """The remedy for an override of a setting that the JobSpec controls, or of a part of it; "" for other settings."""
    # A group, `group/name`, has its settings at `group.name`.
    key = override_key(override).replace("/", ".")
    if key == SEARCHPATH_KEY:
        return ""
    return next((remedy for owned, remedy in OWNED_OVERRIDES.items() if f"{key}.".startswith(f"{owned}.")), "")


def foreign_resolver(override: str) -> str:
    """The first resolver in an override that may read more than the configuration; "" for none."""
    # Hydra removes backslashes: $\{oc.env:HOME\} becomes an interpolation as well.
    for name, end in INTERPOLATION.findall(override.replace("\\", "")):
        name = name.strip()
        if end == ":" and name not in HARMLESS_RESOLVERS:
            return name or "a resolver without a name"
        if end not in (":", "}"):
            # A name that contains an interpolation can become any resolver.
            return f"{name}{end}…"
    return ""


def owned_values(workload: str, archive: str, size: tuple[int, int], reward: RewardFunction | None) -> dict[str, Any]:
    """The values that the composed configuration must have, by the keys of the settings.

    size: the number of nodes, and of GPUs on each. reward: None for verl's own function.
    """
    values: dict[str, Any] = {LOCAL_DIR: checkpoint_path(archive)}
    values |= {"trainer.nnodes": size[0], "trainer.n_gpus_per_node": size[1]}
    values |= {f"ray_kwargs.ray_init.{name}": None for name in RAY_INIT}
    if workload == SFT:
        return values
    if reward:
        return {**values, f"{REWARD_FUNCTION}.path": reward.path, f"{REWARD_FUNCTION}.name": reward.name}
    return {**values, "custom_reward_function.path": None, f"{REWARD_FUNCTION}.path": None}
