# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge who reaches whom: one matrix, and findings that name the machine rather than every pair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..argus.common.findings import ERROR, Finding
from ..network.reach import Outcome, Reached
from .checks import Check, Problem
from .tier import Tier

# Who has measured, then whom it was to reach.
Matrix = Mapping[str, Mapping[str, Reached]]
PORTS = Check(
    "reach.ports",
    ERROR,
    "every machine reaches every other on the cluster's ports",
    "allow these ports from the other machines in its firewall (nft list ruleset, security groups), and check "
    "ray_node_address",
    Tier.STANDARD,
)
WORDS = {Outcome.REFUSED: "refused", Outcome.TIMEOUT: "no answer", Outcome.UNREACHABLE: "no route"}


def ranges(ports: Iterable[int]) -> str:
    """Ports as people write them: "20000-20004, 20010"."""
    texts: list[list[int]] = []
    for port in sorted(set(ports)):
        if texts and port == texts[-1][-1] + 1:
            texts[-1].append(port)
        else:
            texts.append([port])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in texts)


def failures(reached: Reached) -> str:
    """What failed, such as "no answer: 20000-20004"; empty if nothing did."""
    kinds = [(word, reached.failed.get(kind.value)) for kind, word in WORDS.items()]
    return "; ".join(f"{word}: {ranges(ports)}" for word, ports in kinds if ports)


def matrix_rows(matrix: Matrix) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of the matrix: from the machine of the row to that of the column."""
    names = list(dict.fromkeys([*matrix, *(target for row in matrix.values() for target in row)]))
    rows = [[source, *(_cell(matrix.get(source, {}).get(target)) for target in names)] for source in names]
    return ["from \\ to", *names], rows


def _cell(reached: Reached | None) -> str:
    if reached is None:
        return "-"
    if any(reached.failed.values()):
        return failures(reached)
    return f"{reached.milliseconds:.2f} ms" if reached.milliseconds is not None else "-"


def reach_findings(matrix: Matrix) -> list[Finding]:
    """A machine that no other one reaches, or that reaches no other one, is one finding; the rest are one a pair."""
    bad = {(source, target) for source, row in matrix.items() for target in row if any(row[target].failed.values())}
    sources = {source: {target for target in row if target != source} for source, row in matrix.items()}
    targets: dict[str, set[str]] = {}
    for source, others in sources.items():
        for target in others:
            targets.setdefault(target, set()).add(source)
    # With one other machine, it could be either of both.
    closed = [name for name, others in targets.items() if len(others) > 1 and {(s, name) for s in others} <= bad]
    mute = [name for name, others in sources.items() if len(others) > 1 and {(name, t) for t in others} <= bad]
    found = [*_closed(matrix, closed, targets), *_mute(matrix, mute, closed)]
    for source, target in sorted(bad):
        if target not in closed and source not in mute:
            what = f"{source} does not reach it: {failures(matrix[source][target])}"
            found.append(Problem(PORTS, what).finding(target))
    return found


def _closed(matrix: Matrix, closed: Sequence[str], targets: Mapping[str, set[str]]) -> Iterator[Finding]:
    for name in closed:
        texts = sorted({failures(matrix[source][name]) for source in targets[name]})
        yield Problem(PORTS, f"no other machine reaches it: {' or '.join(texts)}").finding(name)


def _mute(matrix: Matrix, mute: Sequence[str], closed: Sequence[str]) -> Iterator[Finding]:
    for name in mute:
        others = [target for target in matrix[name] if target not in closed]
        if others:
            texts = sorted({failures(matrix[name][target]) for target in others})
            todo = "check its own firewall for outgoing connections, its address and its routes"
            yield Problem(PORTS, f"it reaches no other machine: {' or '.join(texts)}", todo).finding(name)
