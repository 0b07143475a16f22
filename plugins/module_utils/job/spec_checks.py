# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec: what a user asks for, checked; and the plan that it becomes on a given cluster.

All of it is pure. Paths are those that nodes see.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ..findings import Finding
from ..launcher import redact
from ..launcher.archive import JOB
from ..launcher.attempts import METRICS_VARIABLE
from ..shared_root import under_root
from ..text import nearest
from .capacity import Cluster
from .durations import DURATIONS, seconds
from .hydra import override_key, override_list
from .submission_id import SUBMISSION_ID
from .verl_releases import SFT, Profile

STAGED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names under which secrets are given to programs.
SECRET_NAME = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY)$", re.IGNORECASE)
# Overrides that would contradict what the JobSpec, the archive or the launcher has decided: the way to say it instead.
OWNED_OVERRIDES = {
    "trainer.nnodes": "say resources.nnodes",
    "trainer.n_gpus_per_node": "say resources.gpus_per_node",
    "trainer.default_local_dir": "leave it out: checkpoints belong into the job's archive",
    "algorithm.adv_estimator": "say workload: ppo or workload: grpo",
    "custom_reward_function.path": "say reward_fn_path; verl 0.9 silently ignores this one",
    "custom_reward_function.name": "say reward_fn_path: FILE:FUNCTION; verl 0.9 silently ignores this one",
    "reward.custom_reward_function.path": "say reward_fn_path",
    "reward.custom_reward_function.name": "say reward_fn_path: FILE:FUNCTION",
    # ray.init: "When connecting to an existing cluster, num_cpus and num_gpus must not be provided."
    "ray_init.num_cpus": "leave it out: the job joins the cluster that there is, which knows its CPUs",
    "ray_kwargs.ray_init.num_cpus": "leave it out: the job joins the cluster that there is, which knows its CPUs",
}
OWNED_ENVIRONMENT = {
    METRICS_VARIABLE: "the metrics belong into the archive",
    "HF_HOME": "it is hf/ under the shared root",
    JOB: "it marks the job's processes",
    redact.ARCHIVE: "it names the job's archive",
}


def unknown_keys(given: Mapping[str, Any], options: Mapping[str, Any], where: str = "") -> list[Finding]:
    found = []
    for key, value in given.items():
        name = f"{where}{key}"
        if key not in options:
            hint = nearest(str(key), options) or f"known keys: {', '.join(sorted(options))}"
            found.append(Finding(name, "is not a key of a JobSpec", hint))
        elif "options" in options[key]:
            if isinstance(value, Mapping):
                found += unknown_keys(value, options[key]["options"], f"{name}.")
            else:
                hint = f"give a mapping with {', '.join(sorted(options[key]['options']))}"
                found.append(Finding(name, f"is {value!r}", hint))
    return found


def path_findings(spec: Mapping[str, Any]) -> list[Finding]:
    found = []
    root = spec["shared_root"]
    if not root.startswith("/"):
        return [Finding("shared_root", f"{root!r} is not absolute", "give the path that nodes see, such as /private")]
    for key, home in (("code_path", "common/code/verl"), ("model", "common/models"), ("dataset", "datasets")):
        value = spec[key]
        if not value.startswith("/"):
            if not STAGED_NAME.fullmatch(value):
                todo = f"give the name of something under {root}/{home}, or an absolute path under {root}"
                found.append(Finding(key, f"{value!r} is neither a name nor an absolute path", todo))
        elif not under_root(value, root):
            found.append(Finding(key, f"{value} is outside the shared root {root}", f"copy it there, to {root}/{home}"))
    reward = spec["reward_fn_path"]
    if reward is not None:
        path, _dummy, function = reward.partition(":")
        if path.startswith("/") and not under_root(path, root):
            found.append(
                Finding("reward_fn_path", f"{path} is outside the shared root {root}", f"copy it to {root}/user/code")
            )
        if not path.endswith(".py") or ".." in PurePosixPath(path).parts:
            todo = "give FILE.py or FILE.py:FUNCTION, relative to user/code or absolute under the shared root"
            found.append(Finding("reward_fn_path", f"{reward!r} is not a Python file", todo))
        if reward.endswith(":") or (function and not function.isidentifier()):
            found.append(
                Finding("reward_fn_path", f"{function!r} is not a function's name", "give FILE.py:compute_score")
            )
        if spec["workload"] == SFT:
            found.append(Finding("reward_fn_path", "sft has no rewards", "leave it out, or choose grpo or ppo"))
    return found


def environment_findings(env_vars: Mapping[str, Any]) -> list[Finding]:
    found = []
    for name, value in env_vars.items():
        where = f"env_vars.{name}"
        # YAML reads names such as `on` as something else than text.
        if not isinstance(name, str) or not ENVIRONMENT_NAME.fullmatch(name):
            found.append(Finding(where, "is not the name of an environment variable", "use letters, digits and _"))
        elif name.startswith("RAY_"):
            # RAY_AUTH_TOKEN there leaves the job PENDING for minutes; others break the connection to the cluster.
            found.append(
                Finding(where, "Ray's own variables belong to the cluster", "leave it out, or use ray_node_env")
            )
        elif name in OWNED_ENVIRONMENT:
            found.append(Finding(where, f"is set by the job itself: {OWNED_ENVIRONMENT[name]}", "leave it out"))
        elif SECRET_NAME.search(name):
            todo = f"say secrets: [{name}], and export it or put it into job_secrets"
            found.append(Finding(where, "a secret there would be readable in the archive and in Ray's dashboard", todo))
        if isinstance(value, (dict, list)) or value is None:
            found.append(Finding(where, f"is {value!r}", "give a string or a number"))
    return found


def secret_findings(spec: Mapping[str, Any]) -> list[Finding]:
    found = []
    for name in spec["secrets"]:
        where = f"secrets: {name}"
        if not ENVIRONMENT_NAME.fullmatch(name):
            found.append(Finding(where, "is not the name of an environment variable", "give names only, no values"))
        elif name.startswith("RAY_") or name in OWNED_ENVIRONMENT:
            found.append(Finding(where, "is set by the cluster or by the job itself", "leave it out"))
        elif name in spec["env_vars"]:
            found.append(Finding(where, "is also in env_vars", "take it out of env_vars"))
    return found


def secret_value_findings(names: Sequence[str], values: Mapping[str, Any]) -> list[Finding]:
    found = []
    for name in names:
        value = values.get(name)
        if not value:
            todo = f"export {name} on the controller, or put it into job_secrets, from a vault"
            found.append(Finding(f"secrets: {name}", "has no value", todo))
        elif not isinstance(value, str) or len(value) < redact.SHORTEST:
            what = f"is not a text of at least {redact.SHORTEST} characters, and could not be kept out of logs"
            found.append(Finding(f"secrets: {name}", what, "put it into env_vars, if it is no secret"))
    return found


def policy_findings(spec: Mapping[str, Any]) -> list[Finding]:
    """How the job is treated while it waits, runs and fails."""
    found = []
    for key in DURATIONS:
        try:
            seconds(spec[key])
        except ValueError as error:
            found.append(Finding(key, str(error), "give seconds, or such as 90m, 1h30m, 2d"))
    if isinstance(spec["retries"], bool) or not 0 <= spec["retries"] <= 100:
        found.append(Finding("retries", f"is {spec['retries']}", "give how often to try again, 0 to 100"))
    origin = spec["resume_from"]
    if origin is not None:
        if not SUBMISSION_ID.fullmatch(origin):
            todo = "give the id of the job from whose last checkpoint this one goes on"
            found.append(Finding("resume_from", f"{origin!r} is not a submission id", todo))
        with contextlib.suppress(ValueError):
            for key in map(override_key, override_list(spec["trainer_overrides"])):
                if key in ("trainer.resume_mode", "trainer.resume_from_path"):
                    found.append(Finding(f"trainer_overrides: {key}", "contradicts resume_from", "keep one of them"))
    for name, value in spec["tags"].items():
        if isinstance(value, (dict, list)):
            found.append(Finding(f"tags.{name}", f"is {value!r}", "give a text or a number"))
    return found


def resource_findings(spec: Mapping[str, Any]) -> list[Finding]:
    found = []
    for key, value in spec["resources"].items():
        if value is not None and (isinstance(value, bool) or value < 1):
            found.append(
                Finding(f"resources.{key}", f"is {value}", "give at least 1, or leave it out for all there are")
            )
    address = spec["ray"]["address"]
    if not address.startswith(("http://", "https://")):
        found.append(Finding("ray.address", f"{address!r} is not an address", "give one such as http://127.0.0.1:8265"))
    entrypoint = spec["ray"]["resources"]["entrypoint_resources"]
    where = "ray.resources.entrypoint_resources"
    for name in ("CPU", "GPU"):
        if name in entrypoint:
            # Ray takes the job and fails it later.
            found.append(Finding(where, f"must not hold {name}", "use ray.resources.entrypoint_num_cpus for CPUs"))
    cpus = spec["ray"]["resources"]["entrypoint_num_cpus"]
    if not 0 <= cpus < math.inf:
        found.append(Finding("ray.resources.entrypoint_num_cpus", f"is {cpus:g}", "give 0 or more"))
    if not any(isinstance(amount, (int, float)) and amount > 0 for amount in entrypoint.values()):
        todo = "keep {worker_node: 1}, or name a resource that only workers have"
        found.append(Finding(where, "nothing in it keeps the driver off the head", todo))
    return found


def override_findings(spec: Mapping[str, Any]) -> list[Finding]:
    found = []
    try:
        overrides = override_list(spec["trainer_overrides"])
    except ValueError as error:
        return [Finding("trainer_overrides", str(error), "give a list of key=value, or a mapping")]
    for override in overrides:
        key = override_key(override)
        if key in OWNED_OVERRIDES:
            found.append(Finding(f"trainer_overrides: {key}", "is decided by the JobSpec", OWNED_OVERRIDES[key]))
    return found


def version_findings(spec: Mapping[str, Any], profile: Profile) -> list[Finding]:
    """What of a checked JobSpec its snapshot's verl cannot do, would not read, or names differently."""
    verl = f"verl {profile.version}"
    if profile.module(spec["workload"]) is None:
        what = f"{verl} has no sft on Ray (verl/trainer/sft_trainer_ray.py)"
        return [Finding("workload", what, "use a snapshot of verl 0.7 or newer")]
    found = []
    for override in override_list(spec["trainer_overrides"]):
        key = override_key(override)
        where = f"trainer_overrides: {key}"
        todo = None if key in OWNED_OVERRIDES else profile.misnamed(spec["workload"], key)
        if todo:
            found.append(Finding(where, f"is not read by {verl}", todo))
        elif key == "trainer.logger":
            named = re.findall(r"\w+", override.partition("=")[2])
            found += [
                Finding(where, f"{verl} has no logger {name}", f"use some of {', '.join(profile.loggers)}")
                for name in named
                if name not in profile.loggers
            ]
        elif spec["workload"] == SFT and key == "trainer.device":
            value = override.partition("=")[2].strip("'\" ")
            if value != profile.sft_device:
                what = f"is {value}, and the driver of {verl} works with {profile.sft_device} only"
                found.append(Finding(where, what, "leave it out"))
    return found


def accelerator_findings(profile: Profile, cluster: Cluster) -> list[Finding]:
    if cluster.accelerator == "cpu" and not profile.cpu_backend:
        what = f"verl {profile.version} cannot train without a GPU: the CPU test backend is for verl 0.9"
        return [Finding("code_path", what, "use a snapshot of verl 0.9, or a cluster with GPUs")]
    return []
