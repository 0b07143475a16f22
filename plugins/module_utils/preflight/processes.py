# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of a machine, from /proc."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from .reader import Reader

# Docker, Podman, containerd and CRI-O name a container's cgroup after its id, with words of their own around it.
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
NAME_LENGTH = 100


@dataclass(frozen=True)
class Process:
    """One process. container is the id of the container that it runs in, or empty."""

    pid: int
    name: str
    state: str = ""
    container: str = ""


def processes(reader: Reader) -> Iterator[Process]:
    """All processes, without their containers, which container_of reads."""
    for directory in reader.paths("/proc/[0-9]*"):
        # Such as "1 (name with (brackets)) S 0 1 …".
        before, bracket, after = reader.text(directory / "stat").rpartition(")")
        if bracket and directory.name.isdigit():
            name = before.partition("(")[2][:NAME_LENGTH]
            yield Process(int(directory.name), name, after.split()[0] if after.split() else "")


def is_alive(reader: Reader, pid: int) -> bool:
    """Whether a process has not ended meanwhile; one that has ended and was not waited for is a zombie."""
    _before, bracket, after = reader.text(f"/proc/{pid}/stat").rpartition(")")
    return bool(bracket) and after.split()[:1] not in (["Z"], ["X"])


def container_of(reader: Reader, pid: int) -> str:
    found = _CONTAINER.findall(reader.text(f"/proc/{pid}/cgroup"))
    return str(found[-1]) if found else ""


def is_ours(process_container: str, containers: Collection[str]) -> bool:
    return bool(process_container) and process_container in containers


def limits_of(reader: Reader, pid: int | str) -> dict[str, str]:
    """The hard limits of a process by name, such as "Max open files"; "unlimited", or a number."""
    rows = re.findall(r"^(Max [a-z ]+?) {2,}\S+ +(\S+)", reader.text(Path(f"/proc/{pid}/limits").as_posix()), re.M)
    return dict(rows)
