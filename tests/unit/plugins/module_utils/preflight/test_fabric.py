from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import ETHERNET, INFINIBAND, Hca, Interface
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.network import network_findings
from samples import HEALTHY, gpus

PORTS = tuple(Hca(f"mlx5_{number}", 1, f"ib{number}", "up", 400, INFINIBAND) for number in range(4))


def host(last: int, hcas: tuple[Hca, ...] = PORTS, mtu: int = 9000, trains: bool = True) -> Context:
    return of([Interface("eth0", (f"10.0.0.{last}/24",), mtu, 25, "up", uplink=True)], hcas, f"10.0.0.{last}", trains)


def of(interfaces: list[Interface], hcas: tuple[Hca, ...], address: str, trains: bool = True) -> Context:
    machine = replace(HEALTHY, interfaces=interfaces, hcas=hcas, gpus=gpus(4))
    return Context("", machine, Expectation(address=address, trains=trains))


def sorted_findings(**changed: Context) -> list[tuple[str, str]]:
    """The keys and places of the findings of three machines, some of which differ."""
    findings = network_findings({"a": host(1), "b": host(2), "c": host(3), **changed})
    assert all(finding.remedy for finding in findings)
    return sorted((finding.key.removeprefix("network."), finding.where) for finding in findings)


def with_port(**changes: Any) -> Context:
    return host(2, (*PORTS[:3], replace(PORTS[3], **changes)))


def roce(last: int, *gids: int | None) -> Context:
    return host(last, tuple(Hca(f"mlx5_{n}", 1, f"eth{n + 1}", "up", 400, ETHERNET, gid) for n, gid in enumerate(gids)))


FINE = {"a": roce(1, 3, 3), "b": roce(2, 3, 3)}
# Slow Ethernet and a port that is down are no part of the fast network.
OTHERS = (Hca("mlx5_9", 1, "eth9", "up", 100, ETHERNET, 3), Hca("mlx5_8", 1, "ib8", "down", 10, INFINIBAND))
BESIDE = Interface("eth5", ("10.7.0.3/24",), 9000)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        *(({}, []), ({"b": host(2, (*PORTS, *OTHERS))}, [])),
        ({"b": with_port(rate_gbit=200)}, [("hca_number", "b"), ("hca_rate", "b")]),
        # No fast network.
        ({"c": host(3, (Hca("mlx5_0", 1, "ib0", "up", 100, INFINIBAND),))}, [("hca_missing", "c")]),
        ({"c": host(3, ())}, [("hca_missing", "c")]),
        # The head's machine needs none.
        ({"c": host(3, (), trains=False)}, []),
        ({"c": host(3, mtu=1500)}, [("mtu", "c")]),
        # GIDs of RoCE.
        ({**FINE, "c": roce(3, 1, 1)}, []),
        ({**FINE, "c": roce(3, 3, None)}, [("gid", "c")]),
        ({**FINE, "c": roce(3, 3, 1)}, [("gid_index", "c")]),
        # Outside the common network.
        ({"c": of([BESIDE], PORTS, "10.0.0.3")}, [("interface", "c")]),
        (
            {"c": of([Interface("eth0", ("10.0.0.3/24",), 9000), BESIDE], PORTS, "10.7.0.3")},
            [("subnet", "c")],
        ),
    ],
)
def test_the_machine_that_differs_is_named(changed: dict[str, Context], expected: list[tuple[str, str]]) -> None:
    assert sorted_findings(**changed) == expected


@pytest.mark.parametrize(("count", "is_bad"), [(50, False), (51, True)])
def test_errors_are_compared_with_the_median(count: int, is_bad: bool) -> None:
    """A restart of the switch counts on all ports, and a few errors are normal."""
    usual = tuple(replace(port, errors={"link_downed": 5}) for port in PORTS)
    bad = (*usual[:3], replace(usual[3], errors={"link_downed": count}))
    expected = [("hca_errors", "b")] * is_bad
    assert sorted_findings(a=host(1, usual), b=host(2, bad), c=host(3, usual)) == expected
    assert sorted_findings(b=with_port(errors={"symbol_error": 10 + is_bad})) == expected
