# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm's commands print, as text: its form is that of all releases, and `--json` changes with each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby

# A key and its value; values may have spaces, and a key begins with a capital letter.
FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_/:]*)=")
NOTHING = ("", "(null)", "None", "N/A", "Unknown", "UNLIMITED")
# One or more parts, each a text and perhaps numbers in brackets.
PART = re.compile(r"([^\[\],]*)(?:\[([^\]]*)\])?")
# More names than that are a mistake of the reader, not a cluster.
MOST_NAMES = 100_000
GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(=]+)?[:=]([0-9]+)")


class FormError(Exception):
    """Slurm printed something that cannot be read; the message has it."""


def fields(line: str) -> list[tuple[str, str]]:
    """The keys and values of a line of `scontrol show --oneliner`, in their order: some keys come several times."""
    keys = list(FIELD.finditer(line))
    ends = [key.start() for key in keys[1:]] + [len(line)]
    return [(key[1], line[key.end() : end].strip()) for key, end in zip(keys, ends, strict=False)]


def records(output: str) -> Iterator[dict[str, str]]:
    """The lines of `scontrol show --oneliner`; of a key that comes several times, the first value."""
    for line in filter(str.strip, output.splitlines()):
        yield dict(reversed(fields(line)))


def value(record: Mapping[str, str], key: str) -> str:
    """A value, or "" if Slurm has none."""
    found = record.get(key, "")
    return "" if found in NOTHING else found


def expand(nodelist: str) -> list[str]:
    """The names in a list of nodes such as `gpu-[01-03,7],r[1-2]n[1-4]`."""
    names: list[str] = []
    position = 0
    text = nodelist.strip()
    while position < len(text):
        found = [""]
        while position < len(text) and text[position] != ",":
            part = PART.match(text, position)
            if part is None or part.end() == position:
                raise FormError(f"{nodelist!r} is not a list of nodes")
            numbers = [""] if part[2] is None else list(_numbers(part[2], nodelist))
            if len(names) + len(found) * len(numbers) > MOST_NAMES:
                raise FormError(f"{nodelist[:80]!r} has too many nodes")
            found = [f"{name}{part[1]}{number}" for name in found for number in numbers]
            position = part.end()
        names += found
        position += 1
    return names


def _numbers(inside: str, whole: str) -> Iterator[str]:
    count = 0
    for span in inside.split(","):
        first, dash, last = span.partition("-")
        if not first.isdecimal() or not (last.isdecimal() or not dash):
            raise FormError(f"{whole!r} is not a list of nodes")
        if not dash:
            yield first
            continue
        count += int(last) - int(first) + 1
        if count > MOST_NAMES:
            raise FormError(f"{whole[:80]!r} has too many nodes")
        # As wide as the first one.
        yield from (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))


def gpus(gres: str) -> int:
    """The GPUs in a list of resources such as `gpu:h100:8(IDX:0-7),shard:4`, of all types together."""
    return sum(int(found) for found in GRES.findall(gres))


def cpus(identifiers: str) -> int:
    """How many CPUs a list such as `0-3,8` has."""
    try:
        return len(list(_numbers(identifiers, identifiers))) if identifiers else 0
    except FormError:
        return 0


def by_node(line: str) -> dict[str, dict[str, str]]:
    """What a job has on each of its nodes, from a line of `scontrol show job --details --oneliner`.

    Keys are CPU_IDs, Mem and GRES. Nodes with the same are in one group of keys, which begins with Nodes.
    """
    found: dict[str, dict[str, str]] = {}
    group = 0

    def numbered(pair: tuple[str, str]) -> int:
        nonlocal group
        group += pair[0] == "Nodes"
        return group

    for number, pairs in groupby(fields(line), numbered):
        has = dict(pairs)
        if number:
            found |= dict.fromkeys(expand(has["Nodes"]), has)
    return found
