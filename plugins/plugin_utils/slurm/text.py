# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm's commands print, as text: its form is that of all releases, and `--json` changes with each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby, islice, product

# A key and its value; values may have spaces, and a key begins with a capital letter.
FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_/:]*)=")
NOTHING = ("", "(null)", "None", "N/A", "Unknown", "UNLIMITED")
# Names of nodes, with numbers in brackets.
NAMES = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
SPAN = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?")
# More than any cluster of Slurm has: what prints such a list may be a program of a job.
MOST_NODES = 1 << 16
GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(=]+)?[:=]([0-9]+)")


class SlurmError(Exception):
    """A command of Slurm failed, or printed something that cannot be read; the message has what it said."""


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
    parts = NAMES.findall(nodelist)
    if ",".join(parts) != nodelist:
        raise SlurmError(f"{nodelist!r} is not a list of nodes")
    for part in parts:
        # Texts, and the numbers between them.
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices, count = [], 1
        for index, piece in enumerate(pieces):
            choices.append([*islice(_numbers(piece), MOST_NODES + 1)] if index % 2 else [piece])
            count *= len(choices[-1])
            if len(names) + count > MOST_NODES:
                raise SlurmError(f"{nodelist[:100]!r} has more than {MOST_NODES} nodes")
        names += map("".join, product(*choices))
    return names


def _numbers(spans: str) -> Iterator[str]:
    for span in spans.split(","):
        first, _dash, last = span.partition("-")
        if not SPAN.fullmatch(span):
            raise SlurmError(f"{spans[:100]!r} are not numbers of nodes")
        # As wide as the first one.
        yield from (f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1))


def gpus(gres: str) -> int:
    """The GPUs in a list of resources such as `gpu:h100:8(IDX:0-7),shard:4`, of all types together."""
    return sum(int(found) for found in GRES.findall(gres))


def cpus(identifiers: str) -> int:
    """How many CPUs a list such as `0-3,8` has."""
    try:
        return len(list(islice(_numbers(identifiers), MOST_NODES))) if identifiers else 0
    except SlurmError:
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
