# SPDX-License-Identifier: Apache-2.0
"""Finds the node or link that makes a collective fail or slow, by measuring smaller groups. It needs no Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from statistics import median
from typing import Any

# The names of nodes that run a collective together.
Group = tuple[str, ...]
# A pair is slow below this fraction of the usual bandwidth of pairs.
SLOW_PAIR_FRACTION = 0.5
# The same for all nodes together, which share links: over TCP, a collective of many nodes does lose some of its rate.
SLOW_WHOLE_FRACTION = 0.1


@dataclass(frozen=True)
class Bandwidth:
    """The bus bandwidth of one collective in GB/s; None with the error if it failed."""

    bandwidth: float | None
    error: str = ""


# Measures disjoint groups of nodes at the same time.
Measure = Callable[[Sequence[Group]], Sequence[Bandwidth]]


@dataclass(frozen=True)
class Verdict:
    """The measurements, and the nodes and links at fault."""

    whole: Bandwidth  # all nodes together
    # Each smaller group, and each node that did not answer as a group of one.
    measured: Mapping[Group, Bandwidth] = field(default_factory=dict)
    bad: tuple[str, ...] = ()  # the nodes that fail, or are slow, with a node that is fine
    links: tuple[Group, ...] = ()  # the pairs that fail, or are slow, although both nodes are fine with others
    # A group that fails although none of its parts does; empty if a node or a link explains the failure.
    group: Group = ()
    # The median bandwidth of pairs in GB/s; of three pairs, the mean of the slowest and the fastest; 0 without any.
    usual: float = 0.0


class FaultSearch:
    """Finds what makes a collective fail: measures all nodes, pairs, each suspect with a good node, then halves."""

    def __init__(self, nodes: Sequence[str], measure: Measure) -> None:
        self.nodes = tuple(nodes)
        self.measured: dict[Group, Bandwidth] = {}
        self._measure = measure

    def run(self) -> Verdict:
        (whole,) = self._measure([self.nodes])
        if len(self.nodes) < 3:
            # With two nodes, either could be at fault.
            return Verdict(whole, group=self.nodes if self._fails(whole, 0.0) else ())
        pairs = self._measure_pairs()
        # Each node counts once: of an odd number, the first one is in two pairs; of three, each is.
        has_three = len(self.nodes) == 3
        rates = [self.measured[pair].bandwidth for pair in (pairs if has_three else pairs[: len(self.nodes) // 2])]
        measured_rates = sorted(rate for rate in rates if rate is not None)
        usual = (
            median(measured_rates[:1] + measured_rates[-1:] if has_three else measured_rates) if measured_rates else 0.0
        )
        limit = SLOW_PAIR_FRACTION * usual
        suspects = [pair for pair in pairs if self._fails(self.measured[pair], limit)]
        unsuspected = set(chain.from_iterable(pair for pair in pairs if pair not in suspects))
        # Nodes that are also in a suspected pair come last.
        good = sorted(filter(unsuspected.__contains__, self.nodes), key=set(chain.from_iterable(suspects)).__contains__)
        bad, links = self._confirm(suspects, good, limit)
        group: Group = ()
        if not bad and not links and self._fails(whole, SLOW_WHOLE_FRACTION * usual):
            group = self._bisect(SLOW_WHOLE_FRACTION * usual)
        return Verdict(whole, dict(self.measured), tuple(bad), tuple(links), group, usual)

    @staticmethod
    def _fails(measured: Bandwidth, limit: float) -> bool:
        return measured.bandwidth is None or measured.bandwidth < limit

    def _measure_new(self, groups: Sequence[Group]) -> None:
        new = [group for group in groups if group not in self.measured]
        if new:
            self.measured.update(zip(new, self._measure(new), strict=True))

    def _measure_pairs(self) -> list[Group]:
        """Measure disjoint pairs; if the number of nodes is odd, also the last with the first; of three, all pairs."""
        pairs = [self.nodes[at : at + 2] for at in range(0, len(self.nodes) - 1, 2)]
        self._measure_new(pairs)
        if len(self.nodes) % 2:
            odd = (self.nodes[-1], self.nodes[0])
            self._measure_new([odd])
            pairs.append(odd)
        if len(self.nodes) == 3:
            self._measure_new([self.nodes[1:]])
            pairs.append(self.nodes[1:])
        return pairs

    def _confirm(self, suspects: Sequence[Group], good: Sequence[str], limit: float) -> tuple[list[str], list[Group]]:
        """The bad nodes and links among suspects: measures each suspected node with a good one, many at once."""
        if not good:
            return [], []
        nodes = [node for node in dict.fromkeys(chain.from_iterable(suspects)) if node not in good]
        bad = []
        for at in range(0, len(nodes), len(good)):
            pairs = list(zip(nodes[at : at + len(good)], good, strict=False))
            self._measure_new(pairs)
            bad += [pair[0] for pair in pairs if self._fails(self.measured[pair], limit)]
        return bad, [pair for pair in suspects if not set(pair) & set(bad)]

    def _bisect(self, limit: float) -> Group:
        """The smallest group that fails although both of its halves do not."""
        group = self.nodes
        while len(group) > 2:
            middle = len(group) // 2
            halves = [half for half in (group[:middle], group[middle:]) if len(half) > 1]
            self._measure_new(halves)
            failing = [half for half in halves if self._fails(self.measured[half], limit)]
            if not failing:
                break
            group = failing[0]
        return group


def to_json(verdict: Verdict) -> dict[str, Any]:
    measured = [{"nodes": list(group), **asdict(measurement)} for group, measurement in verdict.measured.items()]
    return {**asdict(verdict), "measured": measured}


def from_json(answer: dict[str, Any]) -> Verdict:
    measured = {tuple(entry["nodes"]): Bandwidth(entry["bandwidth"], entry["error"]) for entry in answer["measured"]}
    return Verdict(
        Bandwidth(**answer["whole"]),
        measured,
        tuple(answer["bad"]),
        tuple(map(tuple, answer["links"])),
        tuple(answer["group"]),
        answer["usual"],
    )
