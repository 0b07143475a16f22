# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a JobSpec's values. All of them are pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from ..findings import Finding, about
from ..launcher import redact
from ..launcher.archive import JOB
from ..launcher.attempts import METRICS_VARIABLE
from ..launcher.hydra import override_key, override_list, override_text
from ..shared_root import DATASETS, MODELS, SNAPSHOTS, USER_CODE, under_root
from .capacity import Cluster
from .durations import seconds
from .options import RawSpec
from .spec import JobSpec
from .submission_id import SUBMISSION_ID
from .verl_releases import SFT, Profile

# The key of a finding about one override is `trainer_overrides.<key of the override>`.
OVERRIDES = "trainer_overrides"
DURATIONS = ("deadline", "wait_for_resources", "stall_timeout")
STAGED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names of variables in which programs expect secrets.
SECRET_NAME = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY)$", re.IGNORECASE)
# Overrides of settings that the JobSpec, the archive or the launcher controls, and what to set instead.
OWNED_OVERRIDES = {
    "trainer.nnodes": "set resources.nnodes",
    "trainer.n_gpus_per_node": "set resources.gpus_per_node",
    "trainer.default_local_dir": "remove it: checkpoints belong in the job's archive",
    "algorithm.adv_estimator": "set workload: ppo or workload: grpo",
    "custom_reward_function.path": "set reward_fn_path; verl 0.9 silently ignores this key",
    "custom_reward_function.name": "set reward_fn_path: FILE:FUNCTION; verl 0.9 silently ignores this key",
    "reward.custom_reward_function.path": "set reward_fn_path",
    "reward.custom_reward_function.name": "set reward_fn_path: FILE:FUNCTION",
    # ray.init: "When connecting to an existing cluster, num_cpus and num_gpus must not be provided."
    "ray_init.num_cpus": "remove it: the job joins an existing cluster, which knows its CPUs",
    "ray_kwargs.ray_init.num_cpus": "remove it: the job joins an existing cluster, which knows its CPUs",
}
OWNED_ENVIRONMENT = {
    METRICS_VARIABLE: "metrics belong in the archive",
    "HF_HOME": "it is hf/ under the shared root",
    JOB: "it marks the job's processes",
    redact.ARCHIVE: "it is the path of the job's archive",
}
# Variables of Ray that a JobSpec has a key for.
RAY_VARIABLES = {
    "RAY_ADDRESS": "remove it: every job joins the cluster that it is submitted to",
    "RAY_DEBUG_POST_MORTEM": "set debugger: post_mortem",
    "RAY_DEBUG": "set debugger: legacy, or debugger: post_mortem",
}
RESUME_KEYS = ("trainer.resume_mode", "trainer.resume_from_path")


def about_override(override: str, what: str, todo: str) -> Finding:
    """A finding about one override, named by its key."""
    return Finding(f"{OVERRIDES}: {override}", what, todo, key=f"{OVERRIDES}.{override}")


def syntax_findings(values: RawSpec) -> list[Finding]:
    """Durations and overrides that cannot be read. `values` are those of the right types, from `options.typed`."""
    found = []
    for key in DURATIONS:
        try:
            seconds(values[key])
        except ValueError as error:
            found.append(about(key, str(error), "give seconds, or a value such as 90m, 1h30m or 2d"))
    try:
        override_list(values[OVERRIDES])
    except ValueError as error:
        found.append(about(OVERRIDES, str(error), "give a list of key=value, or a mapping"))
    return found


def spec_findings(spec: JobSpec) -> list[Finding]:
    """All problems of the values of a JobSpec that show without a cluster."""
    checks = (_id, _paths, _reward, _environment, _secrets, _policy, _resources, _overrides)
    return [finding for check in checks for finding in check(spec)]


def _id(spec: JobSpec) -> Iterator[Finding]:
    if spec.submission_id is not None and not SUBMISSION_ID.fullmatch(spec.submission_id):
        todo = "use at most 63 lower-case letters, digits, '.', '_' and '-', and begin with a letter or a digit"
        yield about("submission_id", f"{spec.submission_id!r} is malformed", f"{todo}; or leave it out")


def _paths(spec: JobSpec) -> Iterator[Finding]:
    root = spec.shared_root
    if not root.startswith("/"):
        yield about("shared_root", f"{root!r} is not absolute", "give the path that nodes see, such as /private")
        return
    named = (
        ("code_path", spec.code_path, SNAPSHOTS),
        ("model", spec.model, MODELS),
        ("dataset", spec.dataset, DATASETS),
    )
    for key, value, home in named:
        if not value.startswith("/"):
            if not STAGED_NAME.fullmatch(value):
                todo = f"give the name of a directory in {root}/{home}, or an absolute path under {root}"
                yield about(key, f"{value!r} is neither a name nor an absolute path", todo)
        elif not under_root(value, root):
            yield about(key, f"{value} is outside the shared root {root}", f"copy it to {root}/{home}")


def _reward(spec: JobSpec) -> Iterator[Finding]:
    given, key = spec.reward_fn_path, "reward_fn_path"
    if given is None:
        return
    path, _dummy, function = given.partition(":")
    if path.startswith("/") and spec.shared_root.startswith("/") and not under_root(path, spec.shared_root):
        todo = f"copy it to {spec.shared_root}/{USER_CODE}"
        yield about(key, f"{path} is outside the shared root {spec.shared_root}", todo)
    if not path.endswith(".py") or ".." in PurePosixPath(path).parts:
        todo = "give FILE.py or FILE.py:FUNCTION, relative to user/code or absolute under the shared root"
        yield about(key, f"{given!r} is not a Python file", todo)
    if given.endswith(":") or (function and not function.isidentifier()):
        yield about(key, f"{function!r} is not a function name", "give FILE.py:compute_score")
    if spec.workload == SFT:
        yield about(key, "sft has no rewards", "remove it, or choose workload: grpo or ppo")


def _environment(spec: JobSpec) -> Iterator[Finding]:
    for name, value in spec.env_vars.items():
        key = f"env_vars.{name}"
        # YAML reads names such as `on` as booleans.
        if not isinstance(name, str) or not ENVIRONMENT_NAME.fullmatch(name):
            yield about(key, "is not the name of an environment variable", "use letters, digits and _")
        elif name.startswith("RAY_"):
            # RAY_AUTH_TOKEN there leaves the job PENDING for minutes; others break the connection to the cluster.
            todo = RAY_VARIABLES.get(name, "remove it, or set it for the whole cluster with ray_node_env")
            yield about(key, "variables of Ray belong to the cluster", todo)
        elif name in OWNED_ENVIRONMENT:
            yield about(key, f"is set for every job: {OWNED_ENVIRONMENT[name]}", "remove it")
        elif SECRET_NAME.search(name):
            todo = f"set secrets: [{name}], and export it or add it to job_secrets"
            yield about(key, "a secret there would be readable in the archive and in Ray's dashboard", todo)
        if isinstance(value, (dict, list)) or value is None:
            yield about(key, f"is {value!r}", "give a string or a number")


def _secrets(spec: JobSpec) -> Iterator[Finding]:
    for name in spec.secrets:
        if not ENVIRONMENT_NAME.fullmatch(name):
            yield _secret(name, "is not the name of an environment variable", "give names only, no values")
        elif name.startswith("RAY_") or name in OWNED_ENVIRONMENT:
            yield _secret(name, "is set by the cluster or for every job", "remove it")
        elif name in spec.env_vars:
            yield _secret(name, "is also in env_vars", "remove it from env_vars")


def _secret(name: str, what: str, todo: str) -> Finding:
    return Finding(f"secrets: {name}", what, todo, key=f"secrets.{name}")


def secret_value_findings(names: Sequence[str], values: Mapping[str, object]) -> list[Finding]:
    """Secrets without a value, or with one that could not be masked in logs."""
    found = []
    for name in names:
        value = values.get(name)
        if not value:
            todo = f"export {name} on the controller, or add it to job_secrets, from a vault"
            found.append(_secret(name, "has no value", todo))
        elif not isinstance(value, str) or len(value) < redact.SHORTEST:
            what = f"is not a string of at least {redact.SHORTEST} characters, and could not be masked in logs"
            found.append(_secret(name, what, "move it to env_vars if it is not secret"))
    return found


def _policy(spec: JobSpec) -> Iterator[Finding]:
    """The keys that control how the job waits, retries, resumes and is labelled."""
    if isinstance(spec.retries, bool) or not 0 <= spec.retries <= 100:
        yield about("retries", f"is {spec.retries}", "give the number of further attempts, 0 to 100")
    if spec.resume_from is not None:
        if not SUBMISSION_ID.fullmatch(spec.resume_from):
            todo = "give the id of the job whose last checkpoint this job resumes from"
            yield about("resume_from", f"{spec.resume_from!r} is not a submission id", todo)
        for key in map(override_key, spec.trainer_overrides):
            if key in RESUME_KEYS:
                yield about_override(key, "contradicts resume_from", "keep only one of them")
    for name, value in spec.tags.items():
        if isinstance(value, (dict, list)):
            yield about(f"tags.{name}", f"is {value!r}", "give a string or a number")


def _resources(spec: JobSpec) -> Iterator[Finding]:
    for name, value in (("nnodes", spec.nnodes), ("gpus_per_node", spec.gpus_per_node)):
        if value is not None and (isinstance(value, bool) or value < 1):
            yield about(f"resources.{name}", f"is {value}", "give 1 or more, or leave it out to use all")
    if not spec.address.startswith(("http://", "https://")):
        todo = "give an address such as http://127.0.0.1:8265"
        yield about("ray.address", f"{spec.address!r} is not an address", todo)
    key = "ray.resources.entrypoint_resources"
    for name in ("CPU", "GPU"):
        if name in spec.entrypoint_resources:
            # Ray accepts the job and fails it later.
            yield about(key, f"must not contain {name}", "use ray.resources.entrypoint_num_cpus for CPUs")
    if not 0 <= spec.entrypoint_num_cpus < math.inf:
        what = f"is {spec.entrypoint_num_cpus:g}"
        yield about("ray.resources.entrypoint_num_cpus", what, "give 0 or more")
    amounts = spec.entrypoint_resources.values()
    if not any(isinstance(amount, (int, float)) and amount > 0 for amount in amounts):
        todo = "keep {worker_node: 1}, or name a resource that only workers have"
        yield about(key, "contains nothing that keeps the driver off the head", todo)


def _overrides(spec: JobSpec) -> Iterator[Finding]:
    for key in map(override_key, spec.trainer_overrides):
        if key in OWNED_OVERRIDES:
            yield about_override(key, "is controlled by the JobSpec", OWNED_OVERRIDES[key])


def version_findings(spec: JobSpec, profile: Profile) -> list[Finding]:
    """What the snapshot's release of verl cannot do, does not read, or names differently."""
    verl = f"verl {profile.version}"
    if profile.module(spec.workload) is None:
        what = f"{verl} has no sft on Ray (verl/trainer/sft_trainer_ray.py)"
        return [about("workload", what, "use a snapshot of verl 0.7 or newer")]
    found = []
    for override in spec.trainer_overrides:
        key, value = override_key(override), override_text(override)
        todo = None if key in OWNED_OVERRIDES else profile.unread_hint(spec.workload, key)
        if todo:
            found.append(about_override(key, f"is not read by {verl}", todo))
        elif key == "trainer.logger":
            unknown = [name for name in re.findall(r"\w+", value) if name not in profile.loggers]
            todo = f"use some of {', '.join(profile.loggers)}"
            found += [about_override(key, f"{verl} has no logger {name}", todo) for name in unknown]
        elif spec.workload == SFT and key == "trainer.device" and value != profile.sft_device:
            what = f"is {value or 'empty'}, but the driver of {verl} works with {profile.sft_device} only"
            found.append(about_override(key, what, "remove it"))
    return found


def accelerator_findings(profile: Profile, cluster: Cluster) -> list[Finding]:
    """Whether the snapshot's release of verl can train on the cluster's accelerator."""
    if cluster.accelerator == "cpu" and not profile.cpu_backend:
        what = f"verl {profile.version} cannot train without a GPU: the CPU test backend is for verl 0.9"
        return [about("code_path", what, "use a snapshot of verl 0.9, or a cluster with GPUs")]
    return []
