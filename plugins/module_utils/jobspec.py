# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec: what a user asks for, checked; and the plan that it becomes on a given cluster.

All of it is pure. Paths are those that nodes see.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding, nearest
from ansible_collections.argus.verl.plugins.module_utils.launcher import redact
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import JOB
from ansible_collections.argus.verl.plugins.module_utils.launcher.attempts import METRICS_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.launcher.checkpoints import Checkpoint
from ansible_collections.argus.verl.plugins.module_utils.profiles import GRPO, PPO, SFT, Profile

WORKLOADS = (PPO, GRPO, SFT)
SUBMISSION_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
STAGED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names under which secrets are given to programs.
SECRET_NAME = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY)$", re.IGNORECASE)

# The argument spec of a JobSpec: of the module's option, of this check, and of the documentation.
OPTIONS: dict[str, Any] = {
    "submission_id": {"type": "str"},
    "workload": {"type": "str", "choices": list(WORKLOADS), "required": True},
    "shared_root": {"type": "str", "default": "/private"},
    "code_path": {"type": "str", "required": True},
    "reward_fn_path": {"type": "str"},
    "model": {"type": "str", "required": True},
    "dataset": {"type": "str", "required": True},
    "ray": {
        "type": "dict",
        "default": {},
        "options": {
            "address": {"type": "str", "default": "http://127.0.0.1:8265"},
            "resources": {
                "type": "dict",
                "default": {},
                "options": {
                    "entrypoint_resources": {"type": "dict", "default": {"worker_node": 1}},
                    "entrypoint_num_cpus": {"type": "float", "default": 1},
                },
            },
        },
    },
    "resources": {
        "type": "dict",
        "default": {},
        "options": {"nnodes": {"type": "int"}, "gpus_per_node": {"type": "int"}},
    },
    "trainer_overrides": {"type": "raw", "default": []},
    "env_vars": {"type": "dict", "default": {}},
    "secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "retries": {"type": "int", "default": 0},
    "deadline": {"type": "str"},
    "wait_for_resources": {"type": "str"},
    "stall_timeout": {"type": "str", "default": "30m"},
    "on_stall": {"type": "str", "choices": ["report", "stop"], "default": "report"},
    "resume_from": {"type": "str"},
    "debugger": {"type": "str", "choices": ["post_mortem", "legacy"]},
    "tags": {"type": "dict", "default": {}},
    "accept": {"type": "list", "elements": "str", "choices": ["requirements", "space"], "default": []},
}

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
# verl's main_ppo puts these into the runtime_env of its own ray.init, and Ray refuses two values for one key
# ("Failed to merge the Job's runtime env"): they go into the driver's environment, from where verl forwards them.
FORWARDED_BY_VERL = {
    "VERL_FULL_DETERMINISM",
    "VLLM_BATCH_INVARIANT",
    "VERL_RL_INSIGHT_ENABLE",
    "PYTHONHASHSEED",
    "CUBLAS_WORKSPACE_CONFIG",
    "FLASH_ATTENTION_DETERMINISTIC",
    "NCCL_DETERMINISTIC",
    "NCCL_ALGO",
}


# --- What was asked for --------------------------------------------------------------------------------------------


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


def without_empty(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """An empty value in YAML means "as if not given"; in what users name themselves (env_vars) it stays."""
    return {
        key: without_empty(value, options[key]["options"])
        if isinstance(value, Mapping) and "options" in options.get(key, {})
        else value
        for key, value in given.items()
        if value is not None
    }


def known_only(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What can be given to Ansible's own check, which breaks on a number in place of a mapping."""
    return {
        key: known_only(value, options[key]["options"]) if "options" in options[key] else value
        for key, value in given.items()
        if key in options and (isinstance(value, Mapping) or "options" not in options[key])
    }


# In place of a required value that is missing or wrong, so that all the others are checked as well.
STAND_INS = {"workload": GRPO, "code_path": "x", "model": "x", "dataset": "x"}


def type_findings(given: Mapping[str, Any]) -> tuple[list[Finding], dict[str, Any]]:
    """What Ansible's own check of an argument spec says of each key, and the JobSpec with its defaults."""
    found, spec = [], {}
    for key, option in OPTIONS.items():
        value = known_only({key: given[key]}, OPTIONS) if key in given else {}
        # It fills in what a default lacks, and keeps that.
        option = copy.deepcopy(option)
        result = ArgumentSpecValidator({key: option}).validate(value)
        if result.error_messages:
            todo = "see `ansible-doc argus.verl.ray_job`"
            found += [Finding(key, message, todo) for message in result.error_messages]
            replaced = ArgumentSpecValidator({key: {**option, "required": False}}).validate({})
            spec[key] = STAND_INS.get(key, replaced.validated_parameters[key])
        else:
            spec[key] = result.validated_parameters[key]
    return found, spec


def under_root(path: str, shared_root: str) -> bool:
    """Whether a path lies under the shared root, by its text alone; links are followed where there are files."""
    pure = PurePosixPath(path)
    return ".." not in pure.parts and PurePosixPath(shared_root) in pure.parents


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


DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
DURATIONS = ("deadline", "wait_for_resources", "stall_timeout")


def seconds(duration: str | None) -> float | None:
    """The seconds of ``90``, ``30m``, ``1h30m`` or ``2d``; None for nothing and for 0.

    Raises ValueError when it is none of these.
    """
    if duration is None:
        return None
    match = DURATION.fullmatch(duration)
    if not duration or not match:
        raise ValueError(f"{duration!r} is not a duration")
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return (days * 86_400 + hours * 3600 + minutes * 60 + rest) or None


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


def with_defaults(given: Any, defaults: Mapping[str, Any]) -> Any:
    """A JobSpec, and of what it does not say the cluster's defaults; mappings are merged key by key."""
    if not isinstance(given, Mapping):
        return given
    merged = {**defaults, **{key: value for key, value in given.items() if value is not None}}
    for key, value in defaults.items():
        if isinstance(value, Mapping) and isinstance(merged[key], Mapping):
            merged[key] = with_defaults(merged[key], value)
    return merged


def check(given: Any) -> tuple[list[Finding], dict[str, Any]]:
    """All that is wrong with a JobSpec by itself, and the JobSpec with its defaults.

    The JobSpec is complete only if there are no findings.
    """
    if not isinstance(given, Mapping):
        return [
            Finding("jobspec", f"is a {type(given).__name__}", "give a mapping of keys, such as workload: grpo")
        ], {}
    given = without_empty(given, OPTIONS)
    found = unknown_keys(given, OPTIONS)
    wrong_types, spec = type_findings(given)
    found += wrong_types
    # With a slash at its end, paths made from it would not read like those of other jobs.
    spec["shared_root"] = spec["shared_root"].rstrip("/") or "/"
    identifier = spec["submission_id"]
    if identifier is not None and not SUBMISSION_ID.fullmatch(identifier):
        todo = "use small letters, digits, '.', '_' and '-', begin with a letter or digit, at most 63; or leave it out"
        found.append(Finding("submission_id", f"{identifier!r} is malformed", todo))
    found += path_findings(spec)
    found += environment_findings(spec["env_vars"])
    found += secret_findings(spec)
    found += policy_findings(spec)
    found += resource_findings(spec)
    found += override_findings(spec)
    return found, spec


# Keys of which a wrong value leaves the rest to be looked at.
SEPARABLE = {
    *("submission_id", "code_path", "model", "dataset", "reward_fn_path", "env_vars", "secrets", "retries", "on_stall"),
    *("stall_timeout", "resume_from", "debugger", "tags", "accept", "deadline", "wait_for_resources"),
}
OVERRIDE = "trainer_overrides: "


def key_of(finding: Finding) -> str:
    """The key of a JobSpec that a finding is about: one at its top, or one override."""
    return finding.where if finding.where.startswith(OVERRIDE) else re.split(r"[.:]", finding.where)[0]


def examinable(findings: Sequence[Finding], spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """A JobSpec with something harmless in place of what is wrong with it, to see what else is; None if it cannot be.

    What is then found at the keys that are wrong has no meaning.
    """
    wrong = {key_of(finding) for finding in findings}
    if not spec or wrong & (set(OPTIONS) - SEPARABLE):
        return None
    harmless: dict[str, Any] = {key: STAND_INS.get(key, OPTIONS[key].get("default")) for key in wrong & set(OPTIONS)}
    overrides = override_list(spec["trainer_overrides"])
    harmless["trainer_overrides"] = [item for item in overrides if OVERRIDE + override_key(item) not in wrong]
    return without_empty({**spec, **harmless}, OPTIONS)


# --- Hydra -----------------------------------------------------------------------------------------------------------

# What Hydra's grammar lets stand without quotes; a number or a word of its own meaning is quoted by type.
BARE = re.compile(r"[A-Za-z0-9_./%+@?|-]+( [A-Za-z0-9_./%+@?|-]+)*")
# Text that Hydra would read as something else than text.
MEANT_OTHERWISE = re.compile(r"(true|false|null|[+-]?(nan|inf|[0-9._]+(e[+-]?[0-9_]+)?))", re.IGNORECASE)


def hydra_value(value: Any) -> str:
    """A value as Hydra's override grammar writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{hydra_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    text = str(value)
    if BARE.fullmatch(text) and not MEANT_OTHERWISE.fullmatch(text):
        return text
    # Hydra unescapes quotes, and backslashes only before quotes.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    escaped = re.sub(r"(\\+)\Z", r"\1\1", escaped)
    return f"'{escaped}'"


def override_list(given: Any) -> list[str]:
    """Overrides as a list of ``key=value``: from such a list, or from a mapping, nested or with dotted keys."""
    if isinstance(given, Mapping):
        flat: list[str] = []
        for key, value in given.items():
            if isinstance(value, Mapping) and value:
                flat += [_under(str(key), override) for override in override_list(value)]
            elif str(key).startswith("~") and value is None:
                # With "=null", Hydra deletes only what is null.
                flat.append(str(key))
            else:
                flat.append(f"{key}={hydra_value(value)}")
        return override_list(flat)
    if not isinstance(given, (list, tuple)):
        raise ValueError(f"is a {type(given).__name__}, {given!r}")
    for item in given:
        if not isinstance(item, str) or not override_key(item) or not ("=" in item or item.startswith("~")):
            raise ValueError(f"{item!r} is not key=value")
    return list(given)


def _under(key: str, override: str) -> str:
    """`key` put before an override's own key; a prefix of its own (+, ++, ~) belongs before both."""
    bare, bare_key = override.lstrip("+~"), key.lstrip("+~")
    prefix = override[: len(override) - len(bare)] or key[: len(key) - len(bare_key)]
    return f"{prefix}{bare_key}.{bare}"


def override_key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~").strip()


def merge(defaults: Sequence[str], own: Sequence[str]) -> list[str]:
    """The user's overrides after ours, in place of ours where both speak of one key."""
    keys = {override_key(override) for override in own}
    return [override for override in defaults if override_key(override) not in keys] + list(own)


# --- What it becomes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """The cluster as it is now: workers alive, and the least that each of them has."""

    accelerator: str
    workers: int
    gpus_per_node: int
    cpus_per_node: float

    @classmethod
    def of(cls, nodes: Sequence[Mapping[str, Any]]) -> Cluster:
        """From the nodes as Ray's state API gives them; for a while it holds one for alive that was replaced."""
        alive = {node["node_name"]: node for node in nodes if node["state"] == "ALIVE"}
        workers = [node for node in alive.values() if node["resources_total"].get("worker_node")]
        totals = [node["resources_total"] for node in workers]
        labels = {(node.get("labels") or {}).get("argus.verl/accelerator", "cuda") for node in workers}
        return cls(
            accelerator=labels.pop() if len(labels) == 1 else "mixed",
            workers=len(workers),
            gpus_per_node=int(min((total.get("GPU", 0) for total in totals), default=0)),
            cpus_per_node=min((total.get("CPU", 0) for total in totals), default=0),
        )


@dataclass(frozen=True)
class Job:
    """A job, ready to be archived and sent."""

    submission_id: str
    archive: str
    code_path: str
    code_id: str
    module: str
    overrides: list[str]
    runtime_env: dict[str, Any]
    driver_env: dict[str, str]
    entrypoint: str
    entrypoint_resources: dict[str, float]
    entrypoint_num_cpus: float
    address: str
    # What launcher and keeper do while it waits, runs and fails.
    policy: dict[str, Any]
    tags: dict[str, Any]

    def plan(self) -> dict[str, Any]:
        """What launcher and keeper read."""
        return {
            "code_path": self.code_path,
            "code_id": self.code_id,
            "module": self.module,
            "overrides": self.overrides,
            "driver_env": self.driver_env,
            "address": self.address,
            "entrypoint": self.entrypoint,
            "entrypoint_resources": self.entrypoint_resources,
            "entrypoint_num_cpus": self.entrypoint_num_cpus,
            **self.policy,
        }

    def submit_command(self) -> str:
        """The same submission by Ray's own command line, to be run on the head."""
        return (
            f"ray job submit --no-wait --address {shlex.quote(self.address)} --submission-id {self.submission_id} "
            f"--entrypoint-num-cpus {self.entrypoint_num_cpus:g} "
            f"--entrypoint-resources {shlex.quote(json.dumps(self.entrypoint_resources))} "
            f"--runtime-env {shlex.quote(f'{self.archive}/config/runtime_env.json')} -- {self.entrypoint} 1\n"
        )


def new_submission_id(workload: str) -> str:
    """``<workload>-<UTC time>-<random>``; the random part tells apart jobs of one second."""
    return f"{workload}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def resolve_path(value: str, shared_root: str, home: str) -> str:
    """A staged name or an absolute path, as an absolute path."""
    return value if value.startswith("/") else f"{shared_root}/{home}/{value}"


def reward_function(spec: Mapping[str, Any]) -> tuple[str, str] | None:
    """The reward's file and function."""
    if spec["reward_fn_path"] is None:
        return None
    path, _dummy, function = spec["reward_fn_path"].partition(":")
    return resolve_path(path, spec["shared_root"], "user/code"), function or "compute_score"


def size(spec: Mapping[str, Any], cluster: Cluster) -> tuple[int, int]:
    """nnodes and gpus_per_node; what is not said is the whole cluster."""
    asked = spec["resources"]
    return asked.get("nnodes") or cluster.workers, asked.get("gpus_per_node") or cluster.gpus_per_node


# CPUs that verl asks for beside each GPU of a process group's bundle (single_controller/ray/base.py).
CPUS_PER_GPU = {SFT: 10, PPO: 3, GRPO: 3}


def size_findings(spec: Mapping[str, Any], cluster: Cluster) -> list[Finding]:
    """A job that could only wait for ever: verl's SFT says nothing, and hangs."""
    if not cluster.workers:
        return [Finding("cluster", "no worker is alive", "run cluster_up.yml")]
    if cluster.accelerator == "mixed":
        return [Finding("cluster", "workers have different accelerators", "use workers of one kind in a cluster")]
    found = []
    nnodes, gpus = size(spec, cluster)
    if nnodes > cluster.workers:
        todo = f"ask for at most {cluster.workers}, or add workers to the inventory and run cluster_up.yml"
        found.append(Finding("resources.nnodes", f"asks for {nnodes} workers, {cluster.workers} are alive", todo))
    if gpus > cluster.gpus_per_node or not gpus:
        todo = f"ask for at most {cluster.gpus_per_node}"
        found.append(
            Finding(
                "resources.gpus_per_node", f"asks for {gpus} GPUs a worker, they have {cluster.gpus_per_node}", todo
            )
        )
    cpus = CPUS_PER_GPU[spec["workload"]] * gpus
    # The driver is on one of the workers first, and a job on all of them cannot go around it.
    driver = spec["ray"]["resources"]["entrypoint_num_cpus"] if nnodes >= cluster.workers else 0
    if cpus + driver > cluster.cpus_per_node:
        asked = f"{cpus} CPUs a worker" + (f" and {driver:g} for the driver" if driver else "")
        what = f"{spec['workload']} on {gpus} GPUs asks for {asked}, they have {cluster.cpus_per_node:g}"
        found.append(Finding("resources.gpus_per_node", what, "ask for fewer GPUs, or set ray_node_cpus"))
    return found


def common_overrides(
    spec: Mapping[str, Any], cluster: Cluster, submission_id: str, archive: str, profile: Profile
) -> list[str]:
    nnodes, gpus = size(spec, cluster)
    return [
        f"trainer.nnodes={nnodes}",
        f"trainer.n_gpus_per_node={gpus}",
        f"trainer.default_local_dir={hydra_value(f'{archive}/checkpoints')}",
        f"trainer.project_name={spec['workload']}",
        f"trainer.experiment_name={hydra_value(submission_id)}",
        # verl's default is [console,wandb], which fails without an account.
        "trainer.logger=[console,file]" if "file" in profile.loggers else "trainer.logger=[console]",
        "trainer.total_epochs=1",
        "trainer.save_freq=10",
        # The composed configuration and all overrides, kept with the job.
        f"hydra.run.dir={hydra_value(f'{archive}/config/hydra')}",
        "hydra.output_subdir=.",
    ]


def sft_overrides(model: str, dataset: str, profile: Profile) -> list[str]:
    return [
        f"data.train_files={hydra_value(f'{dataset}/train.parquet')}",
        f"data.val_files={hydra_value(f'{dataset}/val.parquet')}",
        f"model.path={hydra_value(model)}",
        # The driver only computes statistics, and has no GPU.
        f"trainer.device={profile.sft_device}",
        "trainer.max_ckpt_to_keep=3",
    ]


def rl_overrides(
    workload: str, model: str, dataset: str, reward: tuple[str, str] | None, profile: Profile
) -> list[str]:
    overrides = [
        f"data.train_files={hydra_value(f'{dataset}/train.parquet')}",
        f"data.val_files={hydra_value(f'{dataset}/val.parquet')}",
        f"actor_rollout_ref.model.path={hydra_value(model)}",
        # Without it verl asks for micro batch sizes of four kinds.
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "trainer.val_before_train=False",
        "trainer.max_actor_ckpt_to_keep=3",
        "trainer.max_critic_ckpt_to_keep=3",
    ]
    if profile.transfer_queue:
        # TransferQueue pins a storage unit to every node alive; the head offers no CPUs for one.
        overrides.append("++transfer_queue.backend.SimpleStorage.required_node_resource=worker_node")
    if reward:
        overrides += [
            f"{profile.name('reward.custom_reward_function.path')}={hydra_value(reward[0])}",
            f"{profile.name('reward.custom_reward_function.name')}={hydra_value(reward[1])}",
        ]
    if workload == GRPO:
        overrides += [
            "algorithm.adv_estimator=grpo",
            # The advantage is relative to the group's other answers: one answer has none.
            "actor_rollout_ref.rollout.n=5",
            "actor_rollout_ref.actor.use_kl_loss=True",
        ]
    else:
        overrides += ["algorithm.adv_estimator=gae", f"critic.model.path={hydra_value(model)}"]
    return overrides


# What the CPU test backend cannot do otherwise: see docs/cpu_backend.md.
CPU_RL = [
    "trainer.device=cpu",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.model.use_remove_padding=False",
    "++actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.rollout.name=hf_cpu",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
]
CPU_CRITIC = [
    "critic.strategy=fsdp2",
    "critic.model.use_remove_padding=False",
    "++critic.model.override_config.attn_implementation=eager",
    "critic.fsdp.use_torch_compile=False",
]
CPU_SFT = [
    "data.num_workers=0",
    "model.use_remove_padding=False",
    "++model.override_config.attn_implementation=eager",
    "engine.strategy=fsdp2",
    "engine.use_torch_compile=False",
]


def accelerator_overrides(workload: str, accelerator: str, gpus: int) -> list[str]:
    if accelerator == "cpu":
        return {SFT: CPU_SFT, GRPO: CPU_RL, PPO: CPU_RL + CPU_CRITIC}[workload]
    if workload == SFT:
        return []
    parallel = ["actor_rollout_ref.rollout.tensor_model_parallel_size=1"] if gpus == 1 else []
    return ["actor_rollout_ref.rollout.name=vllm", *parallel]


# Ray's own switches; see docs/debugging.md.
DEBUGGERS = {"post_mortem": {"RAY_DEBUG_POST_MORTEM": "1"}, "legacy": {"RAY_DEBUG": "legacy"}}
HOOK = "argus_launcher.redact.enter_worker"


def environment(spec: Mapping[str, Any], code_path: str, archive: str) -> dict[str, str]:
    """The environment of driver and workers: what was asked for, and what must hold."""
    root = spec["shared_root"]
    asked = {str(name): str(value) for name, value in spec["env_vars"].items()}
    # The hook that every worker of a job with secrets starts with lies in the archive.
    hook = f"{archive}/config/launcher" if spec["secrets"] else ""
    further = ":".join(filter(None, (asked.get("PYTHONPATH", ""), hook)))
    return {
        "HF_HUB_OFFLINE": "1",  # staged once, never fetched by every node
        "PYTHONUNBUFFERED": "1",
        "HYDRA_FULL_ERROR": "1",
        **asked,
        # The snapshot before everything else; jobs must not write their byte code into it.
        "PYTHONPATH": f"{code_path}:{further}" if further else code_path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HOME": f"{root}/hf",
        # verl's file logger empties its file at every start: one for each attempt.
        METRICS_VARIABLE: f"{archive}/logs/metrics-1.jsonl",
        # By these every process of the job can be found, and finds its secrets.
        JOB: archive.rpartition("/")[2],
        redact.ARCHIVE: archive,
        **DEBUGGERS.get(spec["debugger"], {}),
        # sft_trainer_ray calls ray.init() without an address; Ray then takes this one.
        "RAY_ADDRESS": "auto",
        # Ray's 3 s are too short for a trainer to end and for the evidence.
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
    }


def policy(spec: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """How the job is treated; durations in seconds."""
    nnodes, gpus = size(spec, cluster)
    return {
        "workload": spec["workload"],
        "nnodes": nnodes,
        "gpus_per_node": gpus,
        "cpus_per_node": CPUS_PER_GPU[spec["workload"]] * gpus,
        "secrets": list(spec["secrets"]),
        "retries": spec["retries"],
        "on_stall": spec["on_stall"],
        **{key: seconds(spec[key]) for key in DURATIONS},
    }


def plan(
    spec: Mapping[str, Any],
    cluster: Cluster,
    code_id: str,
    submission_id: str,
    profile: Profile,
    checkpoint: Checkpoint | None = None,
) -> Job:
    """The job that a checked JobSpec becomes on a cluster that it fits.

    code_id: the snapshot's, from its marker.
    profile: of the snapshot's verl; version_findings and accelerator_findings have nothing to say of it.
    checkpoint: the one to go on from, of the job that resume_from names.
    """
    root, workload = spec["shared_root"], spec["workload"]
    archive = f"{root}/jobs/{submission_id}"
    code_path = resolve_path(spec["code_path"], root, "common/code/verl")
    model = resolve_path(spec["model"], root, "common/models")
    dataset = resolve_path(spec["dataset"], root, "datasets")
    if workload == SFT:
        own = sft_overrides(model, dataset, profile)
    else:
        own = rl_overrides(workload, model, dataset, reward_function(spec), profile)
    defaults = [
        *common_overrides(spec, cluster, submission_id, archive, profile),
        *own,
        *accelerator_overrides(workload, cluster.accelerator, size(spec, cluster)[1]),
    ]
    if checkpoint:
        defaults += ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={hydra_value(str(checkpoint.path))}"]
    env = environment(spec, code_path, archive)
    return Job(
        submission_id=submission_id,
        archive=archive,
        code_path=code_path,
        code_id=code_id,
        module=profile.module(workload) or "",
        overrides=merge(defaults, override_list(spec["trainer_overrides"])),
        runtime_env={
            "env_vars": {name: value for name, value in env.items() if name not in FORWARDED_BY_VERL},
            **({"worker_process_setup_hook": HOOK} if spec["secrets"] else {}),
        },
        driver_env={
            **profile.driver_environment(workload),
            **{name: value for name, value in env.items() if name in FORWARDED_BY_VERL},
        },
        # The attempt's number comes after it.
        entrypoint=shlex.join(["python3", f"{archive}/config/launcher", "run", archive]),
        entrypoint_resources=dict(spec["ray"]["resources"]["entrypoint_resources"]),
        entrypoint_num_cpus=spec["ray"]["resources"]["entrypoint_num_cpus"],
        address=spec["ray"]["address"],
        policy={
            **policy(spec, cluster),
            "transfer_queue": workload != SFT and profile.transfer_queue,
            "resumed_from": spec["resume_from"],
            "resumed_from_step": checkpoint.step if checkpoint else None,
        },
        tags=dict(spec["tags"]),
    )
