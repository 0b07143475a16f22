# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses what Slurm's commands print about jobs and nodes.

The text has the same form in all releases of Slurm, while their JSON changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby, islice, product

# A key in a line. The value follows up to the next key and may have spaces; a key begins with a capital letter.
KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_/:]*)=")
EMPTY_VALUES = ("", "(null)", "None", "N/A", "Unknown", "UNLIMITED")
# One name or one group of names, with numbers in brackets.
NODELIST_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
NUMBER_RANGE = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?")
# Limits input that a job may have forged; no cluster has as many nodes.
MAX_NODES = 1 << 16
# The number of GPUs in a list of generic resources.
GPU_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,(=]+)?[:=]([0-9]+)")


class SlurmError(Exception):
    """A command of Slurm failed, or printed something that cannot be parsed; the message has its text."""


def fields_of(line: str) -> list[tuple[str, str]]:
    """The keys and values in a line of `scontrol show --oneliner`, in their order; some keys occur several times."""
    keys = list(KEY.finditer(line))
    ends = [key.start() for key in keys[1:]] + [len(line)]
    return [(key[1], line[key.end() : end].strip()) for key, end in zip(keys, ends, strict=False)]


def records_of(output: str) -> Iterator[dict[str, str]]:
    """A mapping for each line of `scontrol show --oneliner`, with the first value of each key."""
    for line in filter(str.strip, output.splitlines()):
        yield dict(reversed(fields_of(line)))


def field_value(record: Mapping[str, str], key: str) -> str:
    """The value of a key; "" if there is none, or Slurm prints that it has none."""
    value = record.get(key, "")
    return "" if value in EMPTY_VALUES else value


def expand_nodelist(nodelist: str) -> list[str]:
    """The names of nodes in a list such as `gpu-[01-03,7],r[1-2]n[1-4]`. Raises SlurmError."""
    names: list[str] = []
    parts = NODELIST_ITEM.findall(nodelist)
    if ",".join(parts) != nodelist:
        raise SlurmError(f"{nodelist!r} is not a list of nodes")
    for part in parts:
        # Texts at even indices, and the numbers in brackets at odd ones.
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
    """The number of GPUs of all types in a list of resources such as `gpu:h100:8(IDX:0-7),shard:4`."""
    return sum(int(count) for count in GPU_GRES.findall(gres))


def cpu_count(identifiers: str) -> int:
    """The number of CPUs in a list such as `0-3,8`; 0 if it cannot be parsed."""
    try:
        return len(list(islice(_expand_ranges(identifiers), MAX_NODES))) if identifiers else 0
    except SlurmError:
        return 0


def resources_by_node(line: str) -> dict[str, dict[str, str]]:
    """The resources of a job on each of its nodes, from a line of `scontrol show job --details --oneliner`.

    Their keys are CPU_IDs, Mem and GRES. In the line, nodes with equal resources form a group that begins with the key
    Nodes.
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
    """The value of a key as a number; None for another value, such as Unknown."""
    try:
        return float(field_value(record, key))
    except ValueError:
        return None
