# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec: what a user asks for, checked; and the plan that it becomes on a given cluster.

All of it is pure. Paths are those that nodes see.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..findings import Finding
from ..shared_root import resolve_path
from .hydra import override_key, override_list
from .spec_checks import (
    environment_findings,
    override_findings,
    path_findings,
    policy_findings,
    resource_findings,
    secret_findings,
    unknown_keys,
)
from .submission_id import SUBMISSION_ID
from .verl_releases import GRPO, PPO, SFT

WORKLOADS = (PPO, GRPO, SFT)
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


def reward_function(spec: Mapping[str, Any]) -> tuple[str, str] | None:
    """The reward's file and function."""
    if spec["reward_fn_path"] is None:
        return None
    path, _dummy, function = spec["reward_fn_path"].partition(":")
    return resolve_path(path, spec["shared_root"], "user/code"), function or "compute_score"
