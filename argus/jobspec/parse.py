# SPDX-License-Identifier: Apache-2.0
"""Parses a JobSpec, and reports all of its problems that show without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ..archive.plan import COMMAND
from ..common.findings import Finding, about
from ..common.text import nearest
from .limits import limit_findings
from .owned import OVERRIDES
from .spec import KEYS, OPTIONAL_FOR_COMMANDS, TRAINING_KEYS, JobSpec
from .spec_checks import spec_findings
from .value_types import UnfitError

MAX_VALUE_CHARS = 100
# Keys whose values findings do not show: someone may have written a secret in place of its name.
MAY_HOLD_SECRETS = ("secrets", "env_vars", "ray.runtime_env")
# The words of YAML for types that pydantic's messages name.
YAML_NAMES = {"dictionary": "mapping", "tuple": "list"}


def parse_jobspec(jobspec: Any) -> tuple[list[Finding], JobSpec | None]:
    """All problems of a JobSpec that can be found without a cluster, and the JobSpec with its defaults.

    The JobSpec is None if a value is missing, or has a wrong type.
    """
    if not isinstance(jobspec, Mapping):
        problem = f"is a {type(jobspec).__name__}"
        return [Finding("jobspec", problem, "give a mapping of keys, such as workload: grpo")], None
    if too_large := limit_findings(jobspec):
        return too_large, None
    jobspec = without_empty(jobspec, KEYS)
    unknown = unknown_key_findings(jobspec, KEYS)
    if jobspec.get("workload") == COMMAND:
        unknown += [about(key, "is not for a command", "remove it") for key in TRAINING_KEYS if has_key(jobspec, key)]
        jobspec = {**dict.fromkeys(OPTIONAL_FOR_COMMANDS, ""), **jobspec}
    try:
        spec = JobSpec.model_validate(jobspec)
    except ValidationError as error:
        problems = {".".join(part for part in item["loc"] if isinstance(part, str)): item for item in error.errors()}
        wrong_types = [validation_finding(problem, key) for key, problem in problems.items()]
        keys = {finding.key for finding in unknown}
        return [*unknown, *(finding for finding in wrong_types if finding.key not in keys)], None
    return unknown + spec_findings(spec), spec


def validation_finding(problem: Mapping[str, Any], key: str) -> Finding:
    """The finding for a validation error of pydantic."""
    input_value, error = problem["input"], problem.get("ctx", {}).get("error")
    remedy = "give a list of key=value, or a mapping" if key == OVERRIDES else "see `ansible-doc argus.verl.ray_job`"
    shows_type = key in MAY_HOLD_SECRETS or isinstance(input_value, (dict, list))
    value = f"a {type(input_value).__name__}" if shows_type else repr(input_value)[:MAX_VALUE_CHARS]
    if problem["type"] == "missing":
        text = "is required"
    elif isinstance(error, UnfitError):
        text, remedy = str(error), error.remedy
    elif error:
        text = f"is {value}: {error}"
    else:
        expected = str(problem["msg"]).removeprefix("Input ").partition(", unable")[0]
        text = f"is {value}, and {' '.join(YAML_NAMES.get(word, word) for word in expected.split())}"
    return about(key, text, remedy)


def unknown_key_findings(values: Mapping[Any, Any], keys: Mapping[str, Any], where: str = "") -> list[Finding]:
    """Findings about keys that are not in `keys`, and about values that should be mappings.

    where: the prefix of the keys, with its dot.
    """
    findings = []
    for key, value in values.items():
        name = f"{where}{key}"
        if key not in keys:
            place = next((path for path in JobSpec.paths().values() if path.rpartition(".")[2] == key), "")
            hint = f"write it as {place}" if place else nearest(str(key), keys)
            hint = hint or f"known keys: {', '.join(sorted(keys))}"
            findings.append(about(name, "is not a key of a JobSpec", hint))
        elif keys[key]:
            if isinstance(value, Mapping):
                findings += unknown_key_findings(value, keys[key], f"{name}.")
            else:
                hint = f"give a mapping with {', '.join(sorted(keys[key]))}"
                findings.append(about(name, f"is {value!r}", hint))
    return findings


def without_empty(values: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """A JobSpec without keys that are empty in YAML. Mappings with any keys (env_vars, tags) are not changed."""
    return {
        key: without_empty(value, keys[key]) if isinstance(value, Mapping) and keys.get(key) else value
        for key, value in values.items()
        if value is not None
    }


def has_key(values: object, key: str) -> bool:
    """Whether a nested mapping has a dotted key."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True
