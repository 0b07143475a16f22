# SPDX-License-Identifier: Apache-2.0
"""Parses a JobSpec, with all problems that show without a cluster; and merges it with defaults and the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from ..archive.plan import COMMAND
from ..common.findings import Finding, about
from ..common.text import printable, spelling_hint
from ..io.hydra import merge_overrides, override_list, override_text
from .limits import limit_findings
from .owned import OVERRIDES
from .spec import DURATIONS, KEYS, OPTIONAL_FOR_COMMANDS, TRAINING_KEYS, JobSpec
from .spec_checks import spec_findings
from .value_types import UnfitError

MAX_VALUE_CHARS = 100
# Keys whose values findings do not show: someone may have written a secret in place of its name.
MAY_HOLD_SECRETS = ("secrets", "env_vars", "ray.runtime_env")
# The words of YAML for types that pydantic's messages name.
YAML_NAMES = {"dictionary": "mapping", "tuple": "list"}
# The extra variable with changes of a JobSpec: -e 'set=["retries=2", "trainer.total_epochs=1"]'. Each -e adds changes.
SET = "set"
# Keys with mappings of any names.
FREE_MAPPINGS = ("env_vars", "tags")
# Keys of a JobSpec that are also variables of playbooks, with the same meaning.
SHARED_VARIABLES = ("shared_root",)
# The beginning of an override. In -e 'set=retries=2 trainer.nnodes=2', Ansible takes the second part for a variable.
OVERRIDE_START = re.compile(r"[+~]|\w+\.")


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
    hides_value = key in MAY_HOLD_SECRETS or isinstance(input_value, (dict, list))
    value = f"a {type(input_value).__name__}" if hides_value else repr(input_value)[:MAX_VALUE_CHARS]
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
    """Findings about keys that are not in `keys`, and about values that should be mappings."""
    findings = []
    for key, value in values.items():
        name = f"{where}{key}"
        if key not in keys:
            place = next((path for path in JobSpec.paths().values() if path.rpartition(".")[2] == key), "")
            hint = f"write it as {place}" if place else spelling_hint(str(key), keys)
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
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


# Merging a JobSpec with defaults and with changes of the command line.


def defaults_for(jobspec: Any, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """The defaults that apply to a JobSpec. For a command, these are not those of trainings, such as their size."""
    if not isinstance(jobspec, Mapping) or jobspec.get("workload") != COMMAND:
        return defaults
    return {key: value for key, value in defaults.items() if key not in (*TRAINING_KEYS, "resources")}


def with_defaults(jobspec: Any, defaults: Mapping[str, Any]) -> Any:
    """A JobSpec, or changes of one, completed by defaults. Mappings are merged key by key, and overrides by their keys.

    Anything but a mapping is returned unchanged, so that parse_jobspec reports it.
    """
    if not isinstance(jobspec, Mapping):
        return jobspec
    merged = {**defaults, **{key: value for key, value in jobspec.items() if value is not None}}
    for key, value in defaults.items():
        if key == OVERRIDES and jobspec.get(key) is not None:
            merged[key] = merged_or_last_overrides(value, jobspec[key])
        elif isinstance(value, Mapping) and isinstance(merged[key], Mapping):
            merged[key] = with_defaults(merged[key], value)
    return merged


def merged_or_last_overrides(defaults: Any, overrides: Any) -> Any:
    """Overrides of two places merged, in whichever form they are written; only the second ones if merging fails."""
    try:
        return merge_overrides(override_list(defaults), override_list(overrides))
    except ValueError:
        return overrides


def with_command_line(jobspec: Any, variables: Iterable[Mapping[str, Any]]) -> Any:
    """A JobSpec with the changes of `set`. variables: the extra variables, a mapping for each -e in their order."""
    for extra_vars in variables:
        if SET in extra_vars and isinstance(jobspec, Mapping):
            keys, overrides = split_changes(extra_vars[SET])
            jobspec = with_defaults({**keys, OVERRIDES: overrides} if overrides else keys, jobspec)
    return jobspec


def split_changes(changes: Any) -> tuple[dict[str, Any], Any]:
    """Split a value of `set` into keys of a JobSpec, as nested mappings, and overrides of the trainer."""
    try:
        overrides = override_list([changes] if isinstance(changes, str) else changes)
    except ValueError:
        return {}, changes
    fields = {path: name for name, path in JobSpec.paths().items() if path != OVERRIDES}
    keys: dict[str, Any] = {}
    rest = []
    for override in overrides:
        path = override.partition("=")[0].strip()
        value: Any = override_text(override)
        section, _dot, name = path.partition(".")
        if path in fields:
            parts, value = path.split("."), convert_value(fields[path], value)
        elif section in FREE_MAPPINGS and name:
            parts = [section, name]
        else:
            rest.append(override)
            continue
        for part in reversed(parts):
            value = {part: value}
        keys = with_defaults(value, keys)
    return keys, rest


def convert_value(field_name: str, value: Any) -> Any:
    """Convert text from the command line to the type of a field.

    Text that cannot be converted is returned unchanged, so that parse_jobspec reports it.
    """
    if not isinstance(value, str) or field_name not in JobSpec.model_fields or field_name in DURATIONS:
        return value
    if field_name == OVERRIDES:
        return [value]
    field = JobSpec.model_fields[field_name]
    annotation: Any = Annotated[field.annotation, *field.metadata, None]
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    try:
        return adapter.dump_python(adapter.validate_python(value), mode="json")
    except ValidationError:
        return value


def set_only_findings(variables: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Findings about extra variables that are keys of a JobSpec or overrides, which only `set` can change."""
    findings = []
    for name in dict.fromkeys(name for extra_vars in variables for name in extra_vars):
        is_override = OVERRIDE_START.match(name)
        if is_override or name in {*KEYS} - {*SHARED_VARIABLES}:
            problem = f"is {'an override' if is_override else 'a key of a JobSpec'}, and no variable"
            remedy = f'pass all of them as one list: -e \'{SET}=["retries=2", "{printable(name)}=…"]\''
            findings.append(Finding(f"-e {printable(name)}", problem, remedy, key=name))
    return findings
