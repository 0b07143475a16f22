# SPDX-License-Identifier: GPL-3.0-or-later
"""From what its author, the inventory and the command line of ansible-playbook give to a checked JobSpec, without a
cluster."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from ..common.findings import Finding, about
from ..common.text import nearest, printable
from ..io.hydra import merge, override_key, override_list, override_text
from .limits import limit_findings
from .owned import OVERRIDES
from .spec import DURATIONS, KEYS, JobSpec, UnfitError
from .spec_checks import spec_findings

# In place of values that cannot be read, so that the others are checked.
STAND_INS = JobSpec(workload="grpo", code_path="x", model="x", dataset="x")
REQUIRED = ("workload", "code_path", "model", "dataset")
LONGEST_VALUE = 100
# Their values are not shown: someone may have written a secret where only its name belongs.
MAY_HOLD_SECRETS = ("secrets", "env_vars", "ray.runtime_env")
# Keys whose problems do not affect the checks of other keys. Without a reward function, a dataset may have none at all.
SEPARABLE = {
    *("submission_id", "launcher", "code_path", "model", "dataset", "env_vars", "secrets", "retries", "on_stall"),
    *("resume_from", "depends_on", "debugger", "tags", "check_reward", "accept", "priority", *DURATIONS),
}
# Keys of a JobSpec, and further overrides for trainer_overrides. Each -e set=… adds to those before it.
SET = "set"
# Keys with mappings of any names.
FREE_MAPPINGS = ("env_vars", "tags")
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


def parse_jobspec(given: Any) -> tuple[list[Finding], JobSpec | None]:
    """All problems of a JobSpec that can be found without a cluster, and the JobSpec with its defaults.

    A default or a stand-in replaces a value that cannot be read, so that all other keys are checked as well. Use the
    JobSpec only if there are no findings. It is None if `given` is not a mapping, or too large.
    """
    if not isinstance(given, Mapping):
        what = f"is a {type(given).__name__}"
        return [Finding("jobspec", what, "give a mapping of keys, such as workload: grpo")], None
    if too_large := limit_findings(given):
        return too_large, None
    given = without_empty(given, KEYS)
    unknown = unknown_keys(given, KEYS)
    wrong_types, spec = typed(given)
    taken_for = meant(unknown)
    wrong_types = [finding for finding in wrong_types if finding.key in given or finding.key not in taken_for]
    return unknown + wrong_types + spec_findings(spec), spec


def typed(given: Mapping[str, Any]) -> tuple[list[Finding], JobSpec]:
    """Findings for values of wrong types, and the JobSpec with defaults or stand-ins for those."""
    try:
        return [], JobSpec.model_validate(given)
    except ValidationError as error:
        problems = error.errors()
    rest: dict[str, Any] = copy.deepcopy(dict(given))
    findings: dict[str, Finding] = {}
    for problem in problems:
        path = [part for part in problem["loc"] if isinstance(part, str)]
        key = ".".join(path)
        findings.setdefault(key, finding_of(problem, key))
        above = rest
        for part in path[:-1]:
            above = above.get(part, {})
        above.pop(path[-1], None)
    rest |= {key: getattr(STAND_INS, key) for key in REQUIRED if key in findings}
    return list(findings.values()), JobSpec.model_validate(rest)


# Words of pydantic that YAML has other names for.
NAMES = {"dictionary": "mapping", "tuple": "list"}


def finding_of(problem: Mapping[str, Any], key: str) -> Finding:
    """What pydantic says about a value."""
    given, error = problem["input"], problem.get("ctx", {}).get("error")
    todo = "give a list of key=value, or a mapping" if key == OVERRIDES else "see `ansible-doc argus.verl.ray_job`"
    shows_type = key in MAY_HOLD_SECRETS or isinstance(given, (dict, list))
    value = f"a {type(given).__name__}" if shows_type else repr(given)[:LONGEST_VALUE]
    if problem["type"] == "missing":
        what = "is required"
    elif isinstance(error, UnfitError):
        what, todo = str(error), error.todo
    elif error:
        what = f"is {value}: {error}"
    else:
        expected = str(problem["msg"]).removeprefix("Input ").partition(", unable")[0]
        what = f"is {value}, and {' '.join(NAMES.get(word, word) for word in expected.split())}"
    return about(key, what, todo)


def unknown_keys(given: Mapping[Any, Any], keys: Mapping[str, Any], where: str = "") -> list[Finding]:
    """Findings for keys that are not in `keys`, and for values that should be mappings."""
    findings = []
    for key, value in given.items():
        name = f"{where}{key}"
        if key not in keys:
            place = next((path for path in JobSpec.paths().values() if path.rpartition(".")[2] == key), "")
            hint = f"write it as {place}" if place else nearest(str(key), keys)
            hint = hint or f"known keys: {', '.join(sorted(keys))}"
            findings.append(about(name, "is not a key of a JobSpec", hint))
        elif keys[key]:
            if isinstance(value, Mapping):
                findings += unknown_keys(value, keys[key], f"{name}.")
            else:
                hint = f"give a mapping with {', '.join(sorted(keys[key]))}"
                findings.append(about(name, f"is {value!r}", hint))
    return findings


def meant(findings: Iterable[Finding]) -> set[str]:
    """The keys that unknown ones are taken for: what is written there is not missing as well."""
    return {key for key in KEYS for finding in findings if finding.todo == nearest(finding.key, [key])}


def without_empty(given: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """The given keys without those that are empty in YAML. Free-form mappings (env_vars, tags) are not changed."""
    return {
        key: without_empty(value, keys[key]) if isinstance(value, Mapping) and keys.get(key) else value
        for key, value in given.items()
        if value is not None
    }


def top_key(key: str) -> str:
    """The top-level key of a JobSpec that contains a finding's key."""
    return key.partition(".")[0]


def separate_key(finding: Finding) -> str:
    """The smallest part of a JobSpec that can be replaced because of a finding: an override or a top-level key."""
    return finding.key if finding.key.startswith(f"{OVERRIDES}.") else top_key(finding.key)


def examinable(findings: Iterable[Finding], spec: JobSpec) -> JobSpec | None:
    """A JobSpec with defaults for the keys that have findings, for the gate to check the rest; None without a rest.

    The caller drops what the gate reports about the replaced keys.
    """
    wrong = {separate_key(finding) for finding in findings}
    if wrong & (set(KEYS) - SEPARABLE) or "" in wrong:
        return None
    overrides = [item for item in spec.trainer_overrides if f"{OVERRIDES}.{override_key(item)}" not in wrong]
    replaced = {key: getattr(STAND_INS, key) for key in wrong & SEPARABLE}
    return spec.model_copy(update={**replaced, OVERRIDES: tuple(overrides)})


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
        chosen = {name: value for name, value in chosen.items() if name not in {*without, *VARIABLES}}
        if SET in each:
            keys, further = split_set(each[SET])
            chosen = with_defaults(keys, chosen)
            if further:
                chosen[OVERRIDES] = merged_overrides(chosen.get(OVERRIDES) or [], further)
        if chosen:
            given = with_defaults(chosen, given) if isinstance(given, Mapping) else given
    return given


def split_set(given: Any) -> tuple[dict[str, Any], Any]:
    """The keys of a JobSpec in a value of `set`, and the overrides of the trainer."""
    try:
        overrides = override_list([given] if isinstance(given, str) else given)
    except ValueError:
        return {}, given
    fields = {path: name for name, path in JobSpec.paths().items() if path != OVERRIDES}
    keys: dict[str, Any] = {}
    rest = []
    for override in overrides:
        path = override.partition("=")[0].strip()
        value: Any = override_text(override)
        section, _dot, name = path.partition(".")
        if path in fields:
            parts, value = path.split("."), converted(fields[path], value)
        elif section in FREE_MAPPINGS and name:
            parts = [section, name]
        else:
            rest.append(override)
            continue
        for part in reversed(parts):
            value = {part: value}
        keys = with_defaults(value, keys)
    return keys, rest


def converted(name: str, value: Any) -> Any:
    """The text of a key on the command line in the type of the key.

    Text that cannot be converted is returned unchanged, so that parse_jobspec reports it.
    """
    if not isinstance(value, str) or name not in JobSpec.model_fields or name in DURATIONS:
        return value
    if name == OVERRIDES:
        return [value]
    field = JobSpec.model_fields[name]
    annotation: Any = Annotated[field.annotation, *field.metadata, None]
    kind: TypeAdapter[Any] = TypeAdapter(annotation)
    try:
        return kind.dump_python(kind.validate_python(value), mode="json")
    except ValidationError:
        return value


def misspelt(variables: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Findings for extra variables that nothing reads and that resemble a key of a JobSpec."""
    known = {*KEYS, SET}
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
