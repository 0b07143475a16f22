from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from argus.fabric.fault_search import Bandwidth, FaultSearch, Group, Verdict, from_json, to_json

FAILED = Bandwidth(None, "timeout")
NODES = tuple("abcdefgh")


class Fabric:
    """A transport without a network. rule: the bandwidth of a group; None if it fails."""

    def __init__(self, rule: Callable[[Group], float | None]) -> None:
        self.rule = rule
        self.calls: list[list[Group]] = []

    def measure(self, groups: Sequence[Group]) -> list[Bandwidth]:
        members = [node for group in groups for node in group]
        assert len(members) == len(set(members)), "a node is measured twice at the same time"
        assert all(len(group) > 1 for group in groups)
        self.calls.append(list(groups))
        bandwidths = map(self.rule, groups)
        return [FAILED if bandwidth is None else Bandwidth(bandwidth) for bandwidth in bandwidths]

    def verdict(self, nodes: Sequence[str] = NODES) -> Verdict:
        return FaultSearch(nodes, self.measure).run()


def with_bad(*bad: str, bandwidth: float | None) -> Fabric:
    return Fabric(lambda group: bandwidth if set(group) & set(bad) else 10.0)


def test_healthy_nodes() -> None:
    fabric = with_bad(bandwidth=None)
    verdict = fabric.verdict()
    assert (verdict.bad, verdict.links, verdict.group, verdict.usual) == ((), (), (), 10.0)
    assert fabric.calls == [[NODES], [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]]


@pytest.mark.parametrize("bad", ["a", "d"])
@pytest.mark.parametrize("bandwidth", [None, 1.0])
def test_one_bad_node_is_named(bad: str, bandwidth: float | None) -> None:
    verdict = with_bad(bad, bandwidth=bandwidth).verdict()
    assert (verdict.bad, verdict.links, verdict.group) == ((bad,), (), ())
    assert from_json(to_json(verdict)) == verdict


@pytest.mark.parametrize("bad", [("a", "b"), ("a", "c"), ("b", "g"), ("a", "c", "e")])
def test_several_bad_nodes_are_named(bad: tuple[str, ...]) -> None:
    fabric = with_bad(*bad, bandwidth=None)
    assert fabric.verdict().bad == bad
    # Three bad pairs of four leave two nodes for six suspects, which are measured one after the other.
    assert len(bad) < 3 or [len(groups) for groups in fabric.calls[2:]] == [2, 2, 2]


def test_link_between_two_nodes_that_are_fine_with_others() -> None:
    fabric = Fabric(lambda group: None if {"c", "d"} <= set(group) else 10.0)
    verdict = fabric.verdict()
    assert (verdict.bad, verdict.links, verdict.group) == ((), (("c", "d"),), ())


@pytest.mark.parametrize("bad", ["a", "c"])
@pytest.mark.parametrize("bandwidth", [None, 1.0])
def test_odd_number_of_nodes(bad: str, bandwidth: float | None) -> None:
    """The last one is measured with the first one; of three, all pairs are."""
    fabric = with_bad(bad, bandwidth=bandwidth)
    verdict = fabric.verdict("abcde")
    assert verdict.bad == (bad,)
    assert fabric.calls[1:3] == [[("a", "b"), ("c", "d")], [("e", "a")]]
    three = with_bad(bad, bandwidth=bandwidth).verdict("abc")
    assert (three.bad, three.links, three.group) == ((bad,), (), ())
    link = Fabric(lambda group: bandwidth if {"a", "c"} <= set(group) and len(group) == 2 else 10.0)
    assert (link.verdict("abc").bad, link.verdict("abc").links) == ((), (("c", "a"),))


def test_two_nodes_blame_each_other() -> None:
    assert with_bad("a", bandwidth=None).verdict("ab") == Verdict(FAILED, group=("a", "b"))
    assert with_bad("a", bandwidth=1.0).verdict("ab") == Verdict(Bandwidth(1.0))


def test_where_everything_fails_nobody_is_named() -> None:
    verdict = Fabric(lambda _group: None).verdict()
    assert (verdict.bad, verdict.links, verdict.usual) == ((), (), 0.0)
    assert verdict.whole == FAILED
