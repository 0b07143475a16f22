# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JobSpec of a submission, from the defaults of the inventory, a file, and the command line of ansible-playbook."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from ..common.findings import Finding
from ..common.text import printable
from ..launcher.hydra import merge, override_list
from .owned import OVERRIDES
from .spec import DURATIONS, KEYS, JobSpec

# Further overrides for trainer_overrides. Each -e set=… adds to those before it.
SET = "set"
# Variables of playbooks that mean the same there; the roles pass them on themselves.
VARIABLES = ("shared_root", "resume_from")
# Variables of the collection: those of roles, and the others that playbooks have.
PREFIXES = ("job_", "cluster_", "ray_", "staging_", "preflight_", "ansible_")
OTHERS = {*VARIABLES, "jobspec", "shared_root_source", "allow_disruption"}
NAME = re.compile(r"[A-Za-z_]\w*")
# Of the trainer: after a blank in the value of `set`, Ansible takes it for a variable of its own.
OVERRIDE = re.compile(r"[+~]|\w+\.")
# Of "retrys" and "retries". Most names with a lower ratio are other words.
SIMILAR = 0.75


def with_defaults(given: Any, defaults: Mapping[str, Any]) -> Any:
    """A JobSpec completed by defaults. Mappings are merged key by key, and overrides by their keys.

    Anything but a mapping is returned unchanged, so that parse_jobspec reports it.
    """
    if not isinstance(given, Mapping):
        return given
    merged = {**defaults, **{key: value for key, value in given.items() if value is not None}}
    for key, value in defaults.items():
        if key == OVERRIDES and given.get(key) is not None:
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


def with_command_line(given: Any, variables: Iterable[Mapping[str, Any]], without: Iterable[str] = ()) -> Any:
    """A JobSpec with the keys of the command line, which replace its own; mappings are merged key by key.

    variables: extra variables by name, `set` once in each mapping. without: keys that are not replaced.
    """
    for each in variables:
        chosen = {name: converted(name, value) for name, value in each.items() if name in KEYS}
        if SET in each:
            further = [each[SET]] if isinstance(each[SET], str) else each[SET]
            chosen[OVERRIDES] = merged_overrides(chosen.get(OVERRIDES) or [], further)
        chosen = {name: value for name, value in chosen.items() if name not in {*without, *VARIABLES}}
        if chosen:
            given = with_defaults(chosen, given) if isinstance(given, Mapping) else given
    return given


def converted(name: str, value: Any) -> Any:
    """The text of a key on the command line in the type of the key.

    Text that cannot be converted is returned unchanged, so that parse_jobspec reports it.
    """
    if not isinstance(value, str) or name not in JobSpec.model_fields or name in DURATIONS:
        return value
    if name == OVERRIDES:
        return [value]
    field = JobSpec.model_fields[name]
    kind: TypeAdapter[Any] = TypeAdapter(Annotated[field.annotation, *field.metadata, None])
    try:
        return kind.dump_python(kind.validate_python(value), mode="json")
    except ValidationError:
        return value


def misspelt(variables: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Findings for extra variables that nothing reads and that resemble a key of a JobSpec."""
    known = {*KEYS, SET} - {*VARIABLES}
    findings = []
    for name in dict.fromkeys(name for each in variables for name in each):
        if OVERRIDE.match(name):
            listed = f'-e \'{SET}=["data.train_batch_size=16", "{printable(name)}=…"]\''
            todo = f"pass all overrides as one list: {listed}"
            findings.append(Finding(f"-e {printable(name)}", "is an override, and no variable", todo, key=name))
        if name in known or name in OTHERS or name.startswith(PREFIXES) or not NAME.fullmatch(name):
            continue
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=SIMILAR)
        if near:
            todo = f'did you mean "{near[0]}"? Choose another name for a variable of your own'
            findings.append(Finding(f"-e {printable(name)}", "is not a key of a JobSpec", todo, key=name))
    return findings
