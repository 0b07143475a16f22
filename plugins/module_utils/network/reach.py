# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reaches whom: a machine listens on ports, and connects to the ports of others.

Runs on machines with Python 3.9 and newer.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import Enum
from statistics import median
from typing import Any

from . import background
from .background import Background

# So many connections a machine makes at once. Every machine begins with another one, so that no machine has to answer
# all of them at the same time.
PARALLEL = 12
BACKLOG = 64


class Outcome(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """What became of a connection. REFUSED: the machine, or a firewall instead of it, has answered with a refusal."""

    OK = "ok"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Listening:
    """busy: the ports on which something listens already; a connection to them tells as much."""

    process: Background
    ports: Sequence[int]
    busy: Sequence[int]


@dataclass(frozen=True)
class Reached:
    """How one machine reaches another.

    milliseconds: the median of the connections that were made; None without one.
    failed: the ports that were not reached, by outcome.
    """

    milliseconds: float | None
    failed: Mapping[str, Sequence[int]]

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Reached:
        return cls(answer["milliseconds"], answer["failed"])


def listen(ports: Iterable[int], seconds: int, address: str = "0.0.0.0") -> Listening:  # noqa: S104
    """Listen on the ports that are free, for a limited time, in a process of its own."""
    sockets: list[socket.socket] = []
    busy: list[int] = []
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(BACKLOG)
            sockets.append(listener)
        except OSError:
            listener.close()
            busy.append(port)
    held = [listener.getsockname()[1] for listener in sockets]
    keep = [listener.fileno() for listener in sockets]
    process = background.start(lambda: _accept(sockets), keep, seconds)
    for listener in sockets:
        listener.close()
    return Listening(process, held, busy)


def _accept(sockets: Sequence[socket.socket]) -> None:
    """Take every connection and close it; nothing is read."""
    while True:
        for listener in select.select(sockets, [], [])[0]:
            # A client that is gone already is nothing to report.
            try:
                listener.accept()[0].close()
            except OSError:
                continue


def measure(targets: Mapping[str, str], ports: Sequence[int], seconds: float, first: int = 0) -> dict[str, Reached]:
    """Connect to every port of every target.

    targets: address by name.
    seconds: the limit of one connection.
    first: with which of the targets to begin.
    """
    names = list(targets)
    turn = first % len(names) if names else 0
    order = [(name, port) for name in names[turn:] + names[:turn] for port in ports]
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        outcomes = list(pool.map(lambda each: connect(targets[each[0]], each[1], seconds), order))
    found: dict[str, list[tuple[int, Outcome, float]]] = {name: [] for name in names}
    for (name, port), (outcome, taken) in zip(order, outcomes):  # noqa: B905 - strict= came with Python 3.10
        found[name].append((port, outcome, taken))
    return {name: _reached(each) for name, each in found.items()}


def _reached(outcomes: Iterable[tuple[int, Outcome, float]]) -> Reached:
    times: list[float] = []
    failed: dict[str, list[int]] = {}
    for port, outcome, taken in outcomes:
        if outcome == Outcome.OK:
            times.append(taken)
        else:
            failed.setdefault(outcome.value, []).append(port)
    return Reached(round(1000 * median(times), 3) if times else None, failed)


def connect(address: str, port: int, seconds: float) -> tuple[Outcome, float]:
    """Return the outcome, and how long it took."""
    begin = time.monotonic()
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except ConnectionRefusedError:
        outcome = Outcome.REFUSED
    except OSError as error:
        # An address that cannot be resolved is as far away as one without a route.
        late = isinstance(error, socket.timeout) or error.errno == errno.ETIMEDOUT
        outcome = Outcome.TIMEOUT if late else Outcome.UNREACHABLE
    else:
        outcome = Outcome.OK
    return outcome, time.monotonic() - begin


def to_json(found: Mapping[str, Reached]) -> dict[str, Any]:
    return {name: asdict(each) for name, each in found.items()}
