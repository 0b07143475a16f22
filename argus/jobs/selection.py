# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Some lines of a job's log: of a pattern, a rank, a node, an attempt, the last minutes, or the first errors."""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..launcher import attempts, hardware
from ..launcher.archive import Archive
from ..launcher.output import ANSI, process_and_text
from ..launcher.status import JobState
from .info import JobInfo
from .logs import POSITION, first_errors, searched

# The address of the node of a process, which Ray shows unless it is the driver's node.
ADDRESS = re.compile(r"\bip=([^,)\s]+)")
# (rank3 pid=7) of torchrun's processes, [rank3]: of torch, [Rank 3] of verl.
RANK = re.compile(r"[(\[][Rr]ank ?([0-9]+)\b")
# The end of the first line of each attempt but the first. A progress bar of the one before may have no end.
ATTEMPT = re.compile(rf"{attempts.MARKER}([0-9]{{1,6}})$")
# States in which the current attempt has written nothing; the last one is Ray's.
NOT_BEGUN = (JobState.QUEUED, JobState.SUBMITTED, "PENDING")


class SelectionError(Exception):
    """Lines of a log were asked for that cannot be told from others."""


@dataclass(frozen=True)
class Selection:
    """Which lines of a log are shown: those for which all of this is true. Empty: of all lines.

    pattern: a regular expression that matches somewhere.
    rank: of a process of torch, which torchrun's processes tell, and some messages of torch and verl.
    node: of whose process it is, by its name or address.
    attempt: the number of the attempt; 0 for all.
    since: how many seconds old it is at most. Lines after the measurement before that count, too. 0 for all.
    first_errors: of these lines, the first error of each process.
    """

    pattern: str = ""
    rank: str = ""
    node: str = ""
    attempt: int = 0
    since: float = 0.0
    first_errors: bool = False

    def of(self, lines: Sequence[str], first: int, most: int, addresses: Collection[str] = ()) -> list[str]:
        """The last of these lines. Raises re.error.

        first: the attempt that wrote the first of them.
        addresses: of the node; "" stands for the node of the driver of the last attempt.
        """
        pattern = re.compile(self.pattern)
        numbers = attempts_of(lines, first)
        chosen = [
            line
            for line, attempt in zip(lines, numbers, strict=True)
            if self.attempt in (0, attempt)
            and pattern.search(plain := ANSI.sub("", line))
            and (not self.rank or self.rank in RANK.findall(plain))
            and (not addresses or address_of(plain, attempt == numbers[-1]) in addresses)
        ]
        if self.first_errors:
            return first_errors(chosen)
        return chosen[-most:] if most else chosen


def selected(archive: Archive, job: JobInfo, selection: Selection, tail: int, position: str | None) -> list[str]:
    """The last `tail` lines up to job.log_position, or of job.log all, which are those after a position.

    Raises SelectionError, UnreadableError and re.error.
    """
    if position is not None and (selection.attempt or selection.since):
        raise SelectionError("an attempt and a time choose lines of the whole log: leave the position out")
    addresses = addresses_of(archive, selection.node, job) if selection.node else ()
    latest = job.attempt - (job.state in NOT_BEGUN)
    if position is not None:
        return selection.of(job.log, first_attempt(job.log, latest), 0, addresses)
    begin = time.time() - selection.since
    if selection.since and job.ended_at and job.ended_at < begin:
        return []
    measured = hardware.last_before(archive, begin) if selection.since else None
    if measured and not POSITION.fullmatch(measured.log):
        raise SelectionError("no measurement of that time tells how long the log was")
    lines, is_whole = searched(archive, measured.log if measured else "", job.log_position)
    return selection.of(lines, 1 if is_whole else first_attempt(lines, latest), tail, addresses)


def first_attempt(lines: Sequence[str], latest: int) -> int:
    """The attempt that wrote the first of some lines: the one before the next, or the latest without a next one."""
    return next((int(match[1]) - 1 for line in lines if (match := ATTEMPT.search(line))), latest)


def attempts_of(lines: Sequence[str], first: int) -> list[int]:
    """The attempt that wrote each line."""
    numbers: list[int] = []
    for line in lines:
        match = ATTEMPT.search(line)
        first = int(match[1]) if match else first
        numbers.append(first)
    return numbers


def address_of(line: str, is_of_last_attempt: bool) -> str | None:
    """The address of the node that wrote a line; None for a node of an earlier driver, which is not known."""
    match = ADDRESS.search(process_and_text(line)[0])
    return match[1] if match else "" if is_of_last_attempt else None


def addresses_of(archive: Archive, node: str, job: JobInfo) -> set[str]:
    """The addresses that lines of a node have in a log. Raises SelectionError and UnreadableError.

    node: its name or address.
    """
    meant: dict[str, str] = {}
    # The end has the latest address, and the whole that of a node that is gone.
    for tail in (hardware.TAIL_BYTES, 0):
        measured = () if meant else hardware.read(archive, tail)
        known = {name: usage.address for each in measured for name, usage in each.nodes.items() if usage.address}
        meant |= {name: address for name, address in known.items() if node in (name, address)}
    addresses = set(meant.values())
    if job.driver_host in (node, *meant) or job.driver_node_ip == node:
        addresses.add("")
    if not addresses and not is_address(node):
        raise SelectionError(f"no measurement of this job tells the address of {node}: write the address")
    return addresses or {node}


def is_address(text: str) -> bool:
    """Whether it is an IP address, without a zone, which may have any characters."""
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False
