# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec files on the controller: find one, and read its YAML with limits.

A few hundred bytes of YAML can describe more data than a machine has memory, and its nesting can end the interpreter.
So everything is counted before anything is constructed.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import nearest, one_line
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.limits import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_VALUES,
    limit_findings,
)

JSON, YAML = ".json", (".yaml", ".yml")
MAX_BYTES = 256 * 1024
# Longer ones are no numbers and dates of a JobSpec, and converting them takes long.
MAX_NUMBER = 100
LONGEST_ERROR = 300
# What PyYAML raises for values that do not fit their tags, besides errors with a line.
CONSTRUCTION_ERRORS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
TEXT_TAG = "tag:yaml.org,2002:str"


class JobSpecError(Exception):
    """A file that cannot be read as a JobSpec. `line` is the number of the line, or 0 for the whole file."""

    def __init__(self, what: str, todo: str, mark: Any = None) -> None:
        """mark: PyYAML's mark of the place, which has one of two types."""
        super().__init__(what)
        self.todo = todo
        self.line = mark.line + 1 if mark else 0


def jobspec_directories(inventories: Iterable[str]) -> list[Path]:
    """The directories in which inventories keep their JobSpecs."""
    paths = [Path(inventory) for inventory in inventories]
    return [(path if path.is_dir() else path.parent) / "jobspecs" for path in paths]


def load_jobspec(name: str, inventories: Iterable[str]) -> tuple[Any, list[Finding]]:
    """The content of a JobSpec file, given by its path or by its name in an inventory's jobspecs/.

    The content is None if there are findings.
    """
    directories = jobspec_directories(inventories)
    found = existing([Path(name), *(directory / name for directory in directories)]) if name else None
    if found is None:
        known = sorted(
            path.name for directory in directories for path in directory.glob("*.[jy]*") if path.suffix in (JSON, *YAML)
        )
        todo = f"the inventory has {', '.join(known) or 'none'}; a path to any other file works as well"
        what = f"there is no file {name[:200]!r}" if name else "no file was named"
        return None, [Finding("jobspec", what, nearest(name[:200], known) or todo)]
    try:
        text = read_file(found)
        given = parse_yaml(text.expandtabs() if found.suffix == JSON else text)
        if found.suffix == JSON:
            with contextlib.suppress(ValueError):
                # For YAML, 1e-06 is text.
                given = json.loads(text)
    except JobSpecError as error:
        where = f"{found}, line {error.line}" if error.line else str(found)
        return None, [Finding(where, one_line(error, LONGEST_ERROR), error.todo)]
    findings = limit_findings(given)
    return (None, findings) if findings else (given, [])


def existing(candidates: Sequence[Path]) -> Path | None:
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
    """The text of a regular file of at most MAX_BYTES. Raises JobSpecError."""
    try:
        # Without O_NONBLOCK, opening a FIFO waits for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise JobSpecError("is not a regular file", "name a file")
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            todo = "move data and code to files under the shared root"
            raise JobSpecError(f"has more than {MAX_BYTES // 1024} KiB", todo)
        return content.decode("utf-8")
    except OSError as error:
        raise JobSpecError(f"cannot be read: {error.strerror}", "correct the path or its permissions") from error
    except UnicodeDecodeError as error:
        raise JobSpecError(str(error), "save the file as UTF-8") from error


def parse_yaml(text: str) -> Any:
    """The content of one YAML document. Raises JobSpecError."""
    try:
        check_events(text)
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        check_expansion(node)
        check_keys(node)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        parts = [str(part) for part in (error.context, error.problem) if part]
        mark = error.problem_mark or error.context_mark
        raise JobSpecError(", ".join(parts), "correct the YAML there", mark) from error
    except CONSTRUCTION_ERRORS as error:
        raise JobSpecError(f"cannot be read: {error}", "correct the YAML") from error


def check_events(text: str) -> None:
    """Refuse documents that are nested too deeply, or too long, while they are read piece by piece."""
    depth = values = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            values += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > MAX_DEPTH:
            what = f"is nested more than {MAX_DEPTH} levels deep"
            raise JobSpecError(what, "write it with less nesting", event.start_mark)
        if values > MAX_VALUES:
            todo = "move data and code to files under the shared root"
            raise JobSpecError(f"has more than {MAX_VALUES:,} values", todo, event.start_mark)


def check_expansion(root: yaml.Node) -> None:
    """Refuse aliases that contain themselves, or describe too much: with each, its anchor's content counts again."""
    totals: dict[int, tuple[int, int, int]] = {}
    inside: set[int] = set()

    def total(node: yaml.Node) -> tuple[int, int, int]:
        """The values, characters and levels of a node. Recursion is no deeper than the document was."""
        if id(node) in totals:
            return totals[id(node)]
        if id(node) in inside:
            raise JobSpecError("contains an alias of itself", "write the value instead", node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            if node.tag != TEXT_TAG and len(node.value) > MAX_NUMBER:
                raise JobSpecError("is too long for a number", "quote it if it is text", node.start_mark)
            return 1, len(node.value), 0
        inside.add(id(node))
        below = [total(part) for part in parts_of(node)]
        inside.remove(id(node))
        values, characters = 1 + sum(one[0] for one in below), sum(one[1] for one in below)
        levels = 1 + max((one[2] for one in below), default=0)
        if values > MAX_VALUES or characters > MAX_CHARACTERS or levels > MAX_DEPTH:
            raise JobSpecError("describes too much with aliases", "write the values without aliases", node.start_mark)
        totals[id(node)] = values, characters, levels
        return totals[id(node)]

    total(root)


def check_keys(root: yaml.Node) -> None:
    """Refuse keys that a mapping has twice: YAML would take the last one, and readers the first."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        waiting += parts_of(node)
        if isinstance(node, yaml.MappingNode):
            check_keys_of(node)


def check_keys_of(mapping: yaml.MappingNode) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _value in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if (key.tag, key.value) in lines:
            first = lines[key.tag, key.value]
            what = f"the key {key.value[:100]!r} is in line {first} as well"
            raise JobSpecError(what, "keep only one of them", key.start_mark)
        lines[key.tag, key.value] = key.start_mark.line + 1


def parts_of(node: yaml.Node) -> list[yaml.Node]:
    """The nodes below a node. Keys of mappings are nodes as well."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
