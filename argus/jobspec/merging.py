# SPDX-License-Identifier: Apache-2.0
"""Merges a JobSpec from its parts: its author's file, the defaults of the inventory, and the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from ..archive.plan import COMMAND
from ..common.findings import Finding
from ..common.text import printable
from ..io.hydra import merge, override_list, override_text
from .owned import OVERRIDES
from .spec import DURATIONS, KEYS, TRAINING_KEYS, JobSpec

# The extra variable with keys of a JobSpec and overrides of the trainer. Each -e set=… adds to those before it.
SET = "set"
# Keys with mappings of any names.
FREE_MAPPINGS = ("env_vars", "tags")
# Keys of a JobSpec that are also variables of playbooks, with the same meaning.
SHARED_VARIABLES = ("shared_root",)
# An override of the trainer. Ansible takes one for a variable if it follows a blank in the value of `set`.
OVERRIDE_START = re.compile(r"[+~]|\w+\.")


def defaults_for(jobspec: Any, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """The defaults that apply to a JobSpec. For a command, these are not those of trainings, such as their size."""
    if not isinstance(jobspec, Mapping) or jobspec.get("workload") != COMMAND:
        return defaults
    return {key: value for key, value in defaults.items() if key not in (*TRAINING_KEYS, "resources")}


def with_defaults(jobspec: Any, defaults: Mapping[str, Any]) -> Any:
    """A JobSpec completed by defaults. Mappings are merged key by key, and overrides by their keys.

    Anything but a mapping is returned unchanged, so that parse_jobspec reports it.
    """
    if not isinstance(jobspec, Mapping):
        return jobspec
    merged = {**defaults, **{key: value for key, value in jobspec.items() if value is not None}}
    for key, value in defaults.items():
        if key == OVERRIDES and jobspec.get(key) is not None:
            merged[key] = merged_overrides(value, jobspec[key])
        elif isinstance(value, Mapping) and isinstance(merged[key], Mapping):
            merged[key] = with_defaults(merged[key], value)
    return merged


def merged_overrides(defaults: Any, overrides: Any) -> Any:
    """Overrides of two places merged, in whichever form they are written; only the second ones if merging fails."""
    try:
        return merge(override_list(defaults), override_list(overrides))
    except ValueError:
        return overrides


def with_command_line(jobspec: Any, variables: Iterable[Mapping[str, Any]]) -> Any:
    """A JobSpec with the changes of `set`. variables: the extra variables, a mapping for each -e in their order."""
    for extra_vars in variables:
        if SET in extra_vars and isinstance(jobspec, Mapping):
            keys, overrides = split_set(extra_vars[SET])
            jobspec = with_defaults({**keys, OVERRIDES: overrides} if overrides else keys, jobspec)
    return jobspec


def split_set(changes: Any) -> tuple[dict[str, Any], Any]:
    """The keys of a JobSpec in a value of `set`, and the overrides of the trainer in it."""
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
    """The text that the command line has for a field, in the type of the field.

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
