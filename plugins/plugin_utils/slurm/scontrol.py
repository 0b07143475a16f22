# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby, islice, product

# A key and its value; values may have spaces, and a key begins with a capital letter.
FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_/:]*)=")
EMPTY_VALUES = ("", "(null)", "None", "N/A", "Unknown", "UNLIMITED")
# Names of nodes, with numbers in brackets.
NODELIST_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
NUMBER_RANGE = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?")
# Limits untrusted input, which a program of a job may have printed. No cluster of Slurm has as many.
MAX_NODES = 1 << 16
GPU_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(=]+)?[:=]([0-9]+)")


class SlurmError(Exception):
    """A command of Slurm failed, or printed something that cannot be read; the message has what it said."""


def fields_of(line: str) -> list[tuple[str, str]]:
    """The keys and values of a line of `scontrol show --oneliner`, in their order: some keys come several times."""
    keys = list(FIELD.finditer(line))
    ends = [key.start() for key in keys[1:]] + [len(line)]
    return [(key[1], line[key.end() : end].strip()) for key, end in zip(keys, ends, strict=False)]


def records_of(output: str) -> Iterator[dict[str, str]]:
    """The lines of `scontrol show --oneliner`; of a key that comes several times, the first value."""
    for line in filter(str.strip, output.splitlines()):
        yield dict(reversed(fields_of(line)))


def field_value(record: Mapping[str, str], key: str) -> str:
    """A value, or "" if Slurm has none."""
    value = record.get(key, "")
    return "" if value in EMPTY_VALUES else value


def expand_nodelist(nodelist: str) -> list[str]:
    """The names in a list of nodes such as `gpu-[01-03,7],r[1-2]n[1-4]`."""
    names: list[str] = []
    parts = NODELIST_ITEM.findall(nodelist)
    if ",".join(parts) != nodelist:
        raise SlurmError(f"{nodelist!r} is not a list of nodes")
    for part in parts:
        # Texts, and the numbers between them.
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices, count = [], 1
        for index, piece in enumerate(pieces):
            choices.append([*islice(_expand_ranges(piece), MAX_NODES + 1)] if index % 2 else [piece])
            count *= len(choices[-1])
            if len(names) + count > MAX_NODES:
                raise SlurmError(f"{nodelist[:100]!r} has more than {MAX_NODES} nodes")
        names += map("".join, product(*choices))
    return names


def _expand_ranges(ranges: str) -> Iterator[str]:
    for number_range in ranges.split(","):
        first, _dash, last = number_range.partition("-")
        if not NUMBER_RANGE.fullmatch(number_range):
            raise SlurmError(f"{ranges[:100]!r} are not numbers of nodes")
        # Zero-padded like the first number.
        yield from (f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1))


def gpu_count(gres: str) -> int:
    """The GPUs in a list of resources such as `gpu:h100:8(IDX:0-7),shard:4`, of all types together."""
    return sum(int(count) for count in GPU_GRES.findall(gres))


def cpu_count(identifiers: str) -> int:
    """How many CPUs a list such as `0-3,8` has."""
    try:
        return len(list(islice(_expand_ranges(identifiers), MAX_NODES))) if identifiers else 0
    except SlurmError:
        return 0


def resources_by_node(line: str) -> dict[str, dict[str, str]]:
    """What a job has on each of its nodes, from a line of `scontrol show job --details --oneliner`.

    Keys are CPU_IDs, Mem and GRES. Nodes with the same resources share one group, which starts with the key Nodes.
    """
    details: dict[str, dict[str, str]] = {}
    group = 0

    def group_number(pair: tuple[str, str]) -> int:
        nonlocal group
        group += pair[0] == "Nodes"
        return group

    for group_index, pairs in groupby(fields_of(line), group_number):
        resources = dict(pairs)
        if group_index:
            details |= dict.fromkeys(expand_nodelist(resources["Nodes"]), resources)
    return details


def number_value(record: Mapping[str, str], key: str) -> float | None:
    """A value as a number, or None if it is none, such as Unknown."""
    try:
        return float(field_value(record, key))
    except ValueError:
        return None
