# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the node that spoils a collective: first all together, then in pairs, then in halves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from statistics import median
from typing import Any

Group = tuple[str, ...]
# A pair is slow below this part of what most pairs reach, and all together below that part of it: more nodes share more
# links, and a collective over TCP does lose some of its rate.
SLOW_PAIR, SLOW_WHOLE = 0.5, 0.1


@dataclass(frozen=True)
class Measured:
    """The bus bandwidth of one collective in GB/s; None with the error if it failed."""

    bandwidth: float | None
    error: str = ""


# Measures groups of nodes that have no node in common, at the same time.
Measure = Callable[[Sequence[Group]], Sequence[Measured]]


@dataclass(frozen=True)
class Verdict:
    """What was measured, and who is to blame.

    whole: all nodes together. measured: every smaller group; one node alone if it did not answer.
    bad: nodes that fail or are slow with a node that is fine. links: pairs of nodes that are fine with others.
    group: a group that fails although none of its parts does; empty if a node or a link explains it.
    usual: the bandwidth of most pairs; of three, between the slowest and the fastest; 0 if none was measured.
    """

    whole: Measured
    measured: Mapping[Group, Measured] = field(default_factory=dict)
    bad: tuple[str, ...] = ()
    links: tuple[Group, ...] = ()
    group: Group = ()
    usual: float = 0.0


class Search:
    """floor: the bandwidth in GB/s below which a group is slow in any case."""

    def __init__(self, nodes: Sequence[str], measure: Measure, floor: float = 0.0) -> None:
        self.nodes = tuple(nodes)
        self.floor = floor
        self.measured: dict[Group, Measured] = {}
        self._measure = measure

    def run(self) -> Verdict:
        (whole,) = self._measure([self.nodes])
        if len(self.nodes) < 3:
            # Of two nodes, it could be either.
            return Verdict(whole, group=self.nodes if self._fails(whole, self.floor) else ())
        if self.floor and not self._fails(whole, self.floor):
            return Verdict(whole)
        pairs = self._pairs()
        # Of an odd number, the first node is in two pairs; of three, every node is.
        three = len(self.nodes) == 3
        rates = [self.measured[pair].bandwidth for pair in (pairs if three else pairs[: len(self.nodes) // 2])]
        known = sorted(rate for rate in rates if rate is not None)
        usual = median(known[:1] + known[-1:] if three else known) if known else 0.0
        limit = max(self.floor, SLOW_PAIR * usual)
        suspects = [pair for pair in pairs if self._fails(self.measured[pair], limit)]
        good = set(chain.from_iterable(pair for pair in pairs if pair not in suspects))
        # Last those that are in a suspected pair as well.
        fine = sorted(filter(good.__contains__, self.nodes), key=set(chain.from_iterable(suspects)).__contains__)
        bad, links = self._confirm(suspects, fine, limit)
        group: Group = ()
        if not bad and not links and self._fails(whole, max(self.floor, SLOW_WHOLE * usual)):
            group = self._halves(max(self.floor, SLOW_WHOLE * usual))
        return Verdict(whole, dict(self.measured), tuple(bad), tuple(links), group, usual)

    @staticmethod
    def _fails(measured: Measured, limit: float) -> bool:
        return measured.bandwidth is None or measured.bandwidth < limit

    def _ask(self, groups: Sequence[Group]) -> None:
        new = [group for group in groups if group not in self.measured]
        if new:
            self.measured.update(zip(new, self._measure(new), strict=True))

    def _pairs(self) -> list[Group]:
        """Measure each node in one pair; of an odd number, the last with the first, afterwards; of three, all pairs."""
        pairs = [self.nodes[at : at + 2] for at in range(0, len(self.nodes) - 1, 2)]
        self._ask(pairs)
        if len(self.nodes) % 2:
            odd = (self.nodes[-1], self.nodes[0])
            self._ask([odd])
            pairs.append(odd)
        if len(self.nodes) == 3:
            self._ask([self.nodes[1:]])
            pairs.append(self.nodes[1:])
        return pairs

    def _confirm(self, suspects: Sequence[Group], fine: Sequence[str], limit: float) -> tuple[list[str], list[Group]]:
        """Measure every suspected node with one that is fine; as many at once as there are such nodes."""
        if not fine:
            return [], []
        nodes = [node for node in dict.fromkeys(chain.from_iterable(suspects)) if node not in fine]
        bad = []
        for at in range(0, len(nodes), len(fine)):
            pairs = list(zip(nodes[at : at + len(fine)], fine, strict=False))
            self._ask(pairs)
            bad += [pair[0] for pair in pairs if self._fails(self.measured[pair], limit)]
        return bad, [pair for pair in suspects if not set(pair) & set(bad)]

    def _halves(self, limit: float) -> Group:
        """The smallest group that fails although both of its halves do not."""
        group = self.nodes
        while len(group) > 2:
            middle = len(group) // 2
            halves = [half for half in (group[:middle], group[middle:]) if len(half) > 1]
            self._ask(halves)
            failing = [half for half in halves if self._fails(self.measured[half], limit)]
            if not failing:
                break
            group = failing[0]
        return group


def to_json(verdict: Verdict) -> dict[str, Any]:
    measured = [{"nodes": list(group), **asdict(each)} for group, each in verdict.measured.items()]
    return {**asdict(verdict), "measured": measured}


def from_json(answer: dict[str, Any]) -> Verdict:
    measured = {tuple(each["nodes"]): Measured(each["bandwidth"], each["error"]) for each in answer["measured"]}
    return Verdict(
        Measured(**answer["whole"]),
        measured,
        tuple(answer["bad"]),
        tuple(map(tuple, answer["links"])),
        tuple(answer["group"]),
        answer["usual"],
    )
