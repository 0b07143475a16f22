# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds a JobSpec file on the controller, reads its YAML or JSON, and what `-e 'set=["retries=2"]'` changes in it.

Only extra variables of ansible-playbook count, so that no variable of the inventory changes a job.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible import context
from ansible.parsing.splitter import parse_kv
from ansible.utils.vars import load_extra_vars
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, spelling_hint
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.limits import limit_findings

JSON_SUFFIX, YAML_SUFFIXES = ".json", (".yaml", ".yml")
MAX_BYTES = 256 * 1024
MAX_ERROR_CHARS = 300
# What PyYAML raises for values that do not fit their tags, without the line.
CONSTRUCTION_ERRORS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
# Has keys of a JobSpec, and trainer_overrides. Each -e set=… adds to those before it.
SET_VARIABLE = "set"
ID_VARIABLE = "submission_id"
# `set` with a list or a mapping, which Ansible would end at its first blank.
SET_STRUCTURE = re.compile(r"\s*set=(\s*[\[{].*)", re.DOTALL)


class JobSpecError(Exception):
    """A file cannot be read as a JobSpec. `line` is the number of the line, or 0 for the whole file."""

    def __init__(self, problem: str, remedy: str, mark: Any = None) -> None:
        """mark: PyYAML's mark of the place."""
        super().__init__(problem)
        self.remedy = remedy
        self.line = mark.line + 1 if mark else 0


def load_jobspec(name: str, inventories: Iterable[str]) -> tuple[Any, list[Finding]]:
    """The content of a JobSpec file, or None and findings that say what is wrong with it.

    name: the path of the file, or its name in the directory jobspecs/ of an inventory.
    """
    paths = [Path(inventory) for inventory in inventories]
    directories = [(path if path.is_dir() else path.parent) / "jobspecs" for path in paths]
    file = first_file([Path(name), *(directory / name for directory in directories)]) if name else None
    if file is None:
        files = (path for directory in directories for path in directory.glob("*.[jy]*"))
        names = sorted(path.name for path in files if path.suffix in (JSON_SUFFIX, *YAML_SUFFIXES))
        remedy = f"the inventory has {', '.join(names) or 'none'}; a path to any other file works as well"
        problem = f"there is no file {name[:200]!r}" if name else "no file was named"
        return None, [Finding("jobspec", problem, spelling_hint(name[:200], names) or remedy)]
    try:
        text = read_file(file)
        content = parse_yaml(text.expandtabs() if file.suffix == JSON_SUFFIX else text)
        if file.suffix == JSON_SUFFIX:
            with contextlib.suppress(ValueError):
                # Valid JSON is read as JSON: YAML reads 1e-06 as text.
                content = json.loads(text)
    except JobSpecError as error:
        where = f"{file}, line {error.line}" if error.line else str(file)
        return None, [Finding(where, one_line(error, MAX_ERROR_CHARS), error.remedy)]
    findings = limit_findings(content)
    return (None, findings) if findings else (content, [])


def first_file(candidates: Sequence[Path]) -> Path | None:
    """The first of the candidates that exists and is no directory; None if there is none."""
    for candidate in candidates:
        try:
            path = candidate.expanduser()
            if path.exists() and not path.is_dir():
                return path
        # The text is no path: too long, with a NUL, or with the home of a user that does not exist.
        except (OSError, ValueError, RuntimeError):
            continue
    return None


def read_file(path: Path) -> str:
    """The text of a file. Raises JobSpecError, also for more than MAX_BYTES."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            remedy = "move data and code to files under the shared root"
            raise JobSpecError(f"has more than {MAX_BYTES // 1024} KiB", remedy)
        return content.decode("utf-8")
    except OSError as error:
        raise JobSpecError(f"cannot be read: {error.strerror}", "correct the path or its permissions") from error
    except UnicodeDecodeError as error:
        raise JobSpecError(str(error), "save the file as UTF-8") from error


class UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping with the same key twice: PyYAML would take the last value, and a reader the first."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        mapping = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _value in mapping.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in lines:
                problem = f"the key {key.value[:100]!r} is in line {lines[key.tag, key.value]} as well"
                raise JobSpecError(problem, "keep only one of them", key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                lines[key.tag, key.value] = key.start_mark.line + 1
        return mapping


def parse_yaml(text: str) -> Any:
    """The content of one YAML document. Raises JobSpecError."""
    try:
        return yaml.load(text, UniqueKeyLoader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        parts = [str(part) for part in (error.context, error.problem) if part]
        mark = error.problem_mark or error.context_mark
        raise JobSpecError(", ".join(parts), "correct the YAML there", mark) from error
    except RecursionError as error:
        raise JobSpecError("is nested too deep", "write it with less nesting") from error
    except CONSTRUCTION_ERRORS as error:
        raise JobSpecError(f"cannot be read: {error}", "correct the YAML") from error


def extra_variables(loader: Any, of_new_job: bool) -> list[dict[str, Any]]:
    """One mapping with the names of the other extra variables and no values, then one mapping for each value of `set`.

    loader: Ansible's, which can decrypt files. of_new_job: whether the variable submission_id is the id of the job that
    is submitted, and so a key of its JobSpec; else it is the id of the job that is submitted again.
    """
    options = [str(option) for option in context.CLIARGS.get("extra_vars") or ()]
    variables = dict(load_extra_vars(loader))
    set_values = []
    for option in options:
        if option.lstrip().startswith(f"{SET_VARIABLE}="):
            match = SET_STRUCTURE.fullmatch(option)
            set_values.append({SET_VARIABLE: parse_structure(match[1]) if match else parse_kv(option)[SET_VARIABLE]})
    if SET_VARIABLE in variables and not set_values:
        set_values = [{SET_VARIABLE: plain(variables[SET_VARIABLE])}]
    job = variables.pop(ID_VARIABLE, None)
    named = [{SET_VARIABLE: [f"{ID_VARIABLE}={job}"]}] if of_new_job and job else []
    return [{str(name): None for name in variables if name != SET_VARIABLE}, *named, *set_values]


def parse_structure(text: str) -> Any:
    """The list or mapping in a YAML text; if the YAML is wrong, the text itself, which the program then reports."""
    try:
        return plain(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def plain(value: Any) -> Any:
    """A value without Ansible's additions, such as its origin; dates become text, as JSON has none."""
    return json.loads(json.dumps(value, default=str))
