# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a JobSpec as an Ansible argument spec, and the validation of a given JobSpec against it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..common.findings import Finding
from ..common.shared_root import DEFAULT_SHARED_ROOT
from ..common.text import nearest
from ..launcher.hydra import merge, override_list
from ..launcher.plan import RAY, TORCHRUN
from .verl_releases import GRPO, PPO, SFT

# A JobSpec as its author wrote it, and an Ansible argument spec.
RawSpec = Mapping[str, Any]
Options = Mapping[str, Any]

WORKLOADS = (PPO, GRPO, SFT)

# The module's documentation and the schema for editors must match this argument spec; a test compares them.
OPTIONS: Options = {
    "submission_id": {"type": "str"},
    "workload": {"type": "str", "choices": list(WORKLOADS), "required": True},
    "launcher": {"type": "str", "choices": [RAY, TORCHRUN], "default": RAY},
    "shared_root": {"type": "str", "default": DEFAULT_SHARED_ROOT},
    "code_path": {"type": "str", "required": True},
    "reward_fn_path": {"type": "str"},
    "model": {"type": "str", "required": True},
    "dataset": {"type": "str", "required": True},
    "ray": {
        "type": "dict",
        "default": {},
        "options": {
            "address": {"type": "str", "default": "http://127.0.0.1:8265"},
            "runtime_env": {"type": "dict", "default": {}},
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
    "start_timeout": {"type": "str", "default": "60m"},
    "stall_timeout": {"type": "str", "default": "30m"},
    "on_stall": {"type": "str", "choices": ["report", "stop"], "default": "report"},
    "resume_from": {"type": "str"},
    "debugger": {"type": "str", "choices": ["post_mortem", "legacy"]},
    "tags": {"type": "dict", "default": {}},
    "check_reward": {"type": "int", "default": 0},
    "accept": {"type": "list", "elements": "str", "choices": ["requirements", "space"], "default": []},
}
# Values that replace required ones that are missing or wrong, so that all other keys are checked as well.
STAND_INS = {"workload": GRPO, "code_path": "x", "model": "x", "dataset": "x"}


def unknown_keys(given: RawSpec, options: Options, where: str = "") -> list[Finding]:
    """Findings for keys that are not in `options`, and for values that should be mappings."""
    found = []
    for key, value in given.items():
        name = f"{where}{key}"
        if key not in options:
            place = next((place for place in places(OPTIONS) if place.rpartition(".")[2] == key), "")
            hint = f"write it as {place}" if place else nearest(str(key), options)
            hint = hint or f"known keys: {', '.join(sorted(options))}"
            found.append(Finding(name, "is not a key of a JobSpec", hint, key=name))
        elif "options" in options[key]:
            if isinstance(value, Mapping):
                found += unknown_keys(value, options[key]["options"], f"{name}.")
            else:
                hint = f"give a mapping with {', '.join(sorted(options[key]['options']))}"
                found.append(Finding(name, f"is {value!r}", hint, key=name))
    return found


def places(options: Options, where: str = "") -> Iterator[str]:
    """The dotted names of all keys."""
    for key, option in options.items():
        yield f"{where}{key}"
        yield from places(option.get("options", {}), f"{where}{key}.")


def meant(found: list[Finding]) -> set[str]:
    """The keys that unknown ones are taken for: what is written there is not missing as well."""
    return {key for key in OPTIONS for finding in found if finding.todo == nearest(finding.key, [key])}


def without_empty(given: RawSpec, options: Options) -> dict[str, Any]:
    """The given keys without those that are empty in YAML. Free-form mappings (env_vars, tags) are not changed."""
    return {
        key: without_empty(value, options[key]["options"])
        if isinstance(value, Mapping) and "options" in options.get(key, {})
        else value
        for key, value in given.items()
        if value is not None
    }


def known_only(given: RawSpec, options: Options) -> dict[str, Any]:
    """The keys that Ansible's validator can check; it raises an exception for a number in place of a mapping."""
    return {
        key: known_only(value, options[key]["options"]) if "options" in options[key] else value
        for key, value in given.items()
        if key in options and (isinstance(value, Mapping) or "options" not in options[key])
    }


def typed(given: RawSpec) -> tuple[list[Finding], dict[str, Any]]:
    """Findings of Ansible's validator, and the JobSpec with defaults and with values of the right types."""
    found, values = [], {}
    for key, option in OPTIONS.items():
        value = known_only({key: given[key]}, OPTIONS) if key in given else {}
        # The validator modifies the defaults in place.
        option = copy.deepcopy(option)
        result = ArgumentSpecValidator({key: option}).validate(value)
        if result.error_messages:
            todo = "see `ansible-doc argus.verl.ray_job`"
            found += [Finding(key, message, todo, key=key) for message in result.error_messages]
            replaced = ArgumentSpecValidator({key: option}).validate({})
            values[key] = STAND_INS.get(key, replaced.validated_parameters[key])
        else:
            values[key] = result.validated_parameters[key]
    return found, values


def with_defaults(given: Any, defaults: RawSpec) -> Any:
    """A JobSpec completed by the cluster's defaults. Mappings are merged key by key, and overrides by their keys.

    Anything but a mapping is returned unchanged, so that parse_jobspec reports it.
    """
    if not isinstance(given, Mapping):
        return given
    merged = {**defaults, **{key: value for key, value in given.items() if value is not None}}
    for key, value in defaults.items():
        if key == "trainer_overrides" and given.get(key) is not None:
            merged[key] = merged_overrides(value, given[key])
        elif isinstance(value, Mapping) and isinstance(merged[key], Mapping):
            merged[key] = with_defaults(merged[key], value)
    return merged


def merged_overrides(defaults: Any, own: Any) -> Any:
    """Overrides of two places, in whichever form they are written; the second ones if one cannot be read."""
    try:
        return merge(override_list(defaults), override_list(own))
    except ValueError:
        return own


def converted(key: str, value: Any) -> Any:
    """A value of a key in the type of that key, from the command line, where everything may be text.

    A value that cannot be converted is returned unchanged, so that parse_jobspec reports it.
    """
    option = OPTIONS[key]
    if option["type"] == "raw":
        return [value] if isinstance(value, str) else value
    kind = {name: option[name] for name in ("type", "elements") if name in option}
    result = ArgumentSpecValidator({key: kind}).validate({key: value})
    return value if result.error_messages else result.validated_parameters[key]
