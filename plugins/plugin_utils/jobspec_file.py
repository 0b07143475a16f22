# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec files on the controller, and keys of a JobSpec on the command line of ansible-playbook."""

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

# JobSpec files on the controller: find one, and read its YAML.

JSON, YAML = ".json", (".yaml", ".yml")
MAX_BYTES = 256 * 1024
MAX_ERROR_CHARS = 300
# What PyYAML raises for values that do not fit their tags, besides errors with a line.
CONSTRUCTION_ERRORS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class JobSpecError(Exception):
    """A file that cannot be read as a JobSpec. `line` is the number of the line, or 0 for the whole file."""

    def __init__(self, problem: str, remedy: str, mark: Any = None) -> None:
        """mark: PyYAML's mark of the place, which has one of two types."""
        super().__init__(problem)
        self.remedy = remedy
        self.line = mark.line + 1 if mark else 0


def load_jobspec(name: str, inventories: Iterable[str]) -> tuple[Any, list[Finding]]:
    """The content of a JobSpec file, given by its path or by its name in an inventory's jobspecs/.

    The content is None if there are findings.
    """
    paths = [Path(inventory) for inventory in inventories]
    directories = [(path if path.is_dir() else path.parent) / "jobspecs" for path in paths]
    file = first_file([Path(name), *(directory / name for directory in directories)]) if name else None
    if file is None:
        names = sorted(
            path.name for directory in directories for path in directory.glob("*.[jy]*") if path.suffix in (JSON, *YAML)
        )
        remedy = f"the inventory has {', '.join(names) or 'none'}; a path to any other file works as well"
        problem = f"there is no file {name[:200]!r}" if name else "no file was named"
        return None, [Finding("jobspec", problem, spelling_hint(name[:200], names) or remedy)]
    try:
        text = read_file(file)
        content = parse_yaml(text.expandtabs() if file.suffix == JSON else text)
        if file.suffix == JSON:
            with contextlib.suppress(ValueError):
                # For YAML, 1e-06 is text.
                content = json.loads(text)
    except JobSpecError as error:
        where = f"{file}, line {error.line}" if error.line else str(file)
        return None, [Finding(where, one_line(error, MAX_ERROR_CHARS), error.remedy)]
    findings = limit_findings(content)
    return (None, findings) if findings else (content, [])


def first_file(candidates: Sequence[Path]) -> Path | None:
    """The first of these that exists and is no directory."""
    for candidate in candidates:
        try:
            path = candidate.expanduser()
            if path.exists() and not path.is_dir():
                return path
        # A text that is no path: too long, with a NUL, or with the home of a user that does not exist.
        except (OSError, ValueError, RuntimeError):
            continue
    return None


def read_file(path: Path) -> str:
    """The text of a file of at most MAX_BYTES. Raises JobSpecError."""
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


class Loader(yaml.SafeLoader):
    """Refuses keys that a mapping has twice: YAML would take the last one, and readers the first."""

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
        return yaml.load(text, Loader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        parts = [str(part) for part in (error.context, error.problem) if part]
        mark = error.problem_mark or error.context_mark
        raise JobSpecError(", ".join(parts), "correct the YAML there", mark) from error
    except RecursionError as error:
        raise JobSpecError("is nested too deep", "write it with less nesting") from error
    except CONSTRUCTION_ERRORS as error:
        raise JobSpecError(f"cannot be read: {error}", "correct the YAML") from error


# What the command line of ansible-playbook changes in a JobSpec: ``-e 'set=["retries=2", "data.seed=1"]'``.
#
# Only extra variables count, so that a variable of the inventory changes no job.

# Keys of a JobSpec, and further overrides for trainer_overrides. Each -e set=… adds to those before it.
SET = "set"
JOB = "submission_id"
# A list or a mapping as the value. Ansible would end it at its first blank.
STRUCTURE = re.compile(r"\s*set=(\s*[\[{].*)", re.DOTALL)


def extra_variables(loader: Any, of_new_job: bool) -> list[dict[str, Any]]:
    """The names of the extra variables of this run, without values; and each value of `set` in a mapping of its own.

    loader: the one of this run, which can decrypt files. of_new_job: whether the variable submission_id, which all
    playbooks have, is the id of the job that is submitted, and not that of its origin.
    """
    options = [str(option) for option in context.CLIARGS.get("extra_vars") or ()]
    variables = dict(load_extra_vars(loader))
    further = []
    for option in options:
        if option.lstrip().startswith(f"{SET}="):
            match = STRUCTURE.fullmatch(option)
            further.append({SET: parse_structure(match[1]) if match else parse_kv(option)[SET]})
    if SET in variables and not further:
        further = [{SET: plain(variables[SET])}]
    job = variables.pop(JOB, None)
    named = [{SET: [f"{JOB}={job}"]}] if of_new_job and job else []
    return [{str(name): None for name in variables if name != SET}, *named, *further]


def parse_structure(text: str) -> Any:
    """A list or mapping in YAML; the text itself, which is then reported as the wrong value, if it is none."""
    try:
        return plain(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def plain(value: Any) -> Any:
    """A value without what Ansible adds to it, such as where it comes from; dates become text, as in JSON."""
    return json.loads(json.dumps(value, default=str))
