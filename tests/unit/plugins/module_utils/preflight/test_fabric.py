from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import ETHERNET, INFINIBAND, Hca, Interface
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.network import network_findings
from samples import HEALTHY, gpus

PORTS = tuple(Hca(f"mlx5_{number}", 1, f"ib{number}", "up", 400, INFINIBAND) for number in range(4))


def host(last: int, hcas: tuple[Hca, ...] = PORTS, mtu: int = 9000, trains: bool = True) -> Context:
    eth0 = Interface("eth0", (f"10.0.0.{last}/24",), mtu, 25, "up", uplink=True)
    return of([eth0], hcas, f"10.0.0.{last}", trains)


def of(interfaces: list[Interface], hcas: tuple[Hca, ...], address: str, trains: bool = True) -> Context:
    machine = replace(HEALTHY, interfaces=interfaces, hcas=hcas, gpus=gpus(4))
    return Context("", machine, Expectation(address=address, trains=trains))


def findings(**changed: Context) -> list[Finding]:
    """The findings of three machines, some of which differ."""
    hosts = {"a": host(1), "b": host(2), "c": host(3), **changed}
    return network_findings(hosts)


def only(key: str, where: str, **changed: Context) -> str:
    (found,) = findings(**changed)
    assert (found.key, found.where) == (key, where)
    assert found.remedy
    return found.problem


def with_port(last: int, **changes: object) -> Context:
    return host(last, (*PORTS[:3], replace(PORTS[3], **changes)))  # type: ignore[arg-type]


def test_slower_port_is_named() -> None:
    # Slow Ethernet and a port that is down are none.
    storage = Hca("mlx5_9", 1, "eth9", "up", 100, ETHERNET, 3)
    down = Hca("mlx5_8", 1, "ib8", "down", 10, INFINIBAND)
    assert findings() == network_findings({}) == findings(b=host(2, (*PORTS, storage, down))) == []
    number, rate = sorted(findings(b=with_port(2, rate_gbit=200)), key=lambda found: found.key, reverse=True)[::-1]
    assert {number.key, rate.key} == {"network.hca_number", "network.hca_rate"}
    both = {found.key: found.problem for found in (number, rate)}
    assert both["network.hca_rate"] == "mlx5_3 port 1 runs at 200 Gbit/s, expected 400: jobs do not use it"
    assert both["network.hca_number"] == "3 HCA ports of the fast network, expected 4 as on most machines"


def test_machine_without_the_fast_network() -> None:
    slow = (Hca("mlx5_0", 1, "ib0", "up", 100, INFINIBAND),)
    what = only("network.hca_missing", "c", c=host(3, slow))
    assert what == (
        "no active HCA port of InfiniBand at 400 Gbit/s, which other machines have (active: mlx5_0 at 100 Gbit/s)"
    )
    assert only("network.hca_missing", "c", c=host(3, ())).endswith("(active: none)")
    assert "9000" in only("network.mtu", "c", c=host(3, mtu=1500))
    # The head's machine needs none.
    assert findings(c=host(3, (), trains=False)) == []


def test_gids_of_roce() -> None:
    def roce(*gids: int | None) -> tuple[Hca, ...]:
        return tuple(Hca(f"mlx5_{n}", 1, f"eth{n + 1}", "up", 400, ETHERNET, gid) for n, gid in enumerate(gids))

    fine = {"a": host(1, roce(3, 3)), "b": host(2, roce(3, 3)), "c": host(3, roce(1, 1))}
    assert findings(**fine) == []
    missing = only("network.gid", "c", **{**fine, "c": host(3, roce(3, None))})
    assert missing == "no GID of RoCE v2 over IPv4 on mlx5_1"
    differs = only("network.gid_index", "c", **{**fine, "c": host(3, roce(3, 1))})
    assert differs == "the GID of RoCE v2 over IPv4 has different indexes: mlx5_0 3, mlx5_1 1"


@pytest.mark.parametrize(("count", "found"), [(50, 0), (51, 1)])
def test_errors_are_compared_with_the_median(count: int, found: int) -> None:
    """A restart of the switch counts on all ports."""
    usual = tuple(replace(port, errors={"link_downed": 5}) for port in PORTS)
    bad = (*usual[:3], replace(usual[3], errors={"link_downed": count}))
    assert len(findings(a=host(1, usual), b=host(2, bad), c=host(3, usual))) == found
    # A few are normal.
    assert [each.key for each in findings(b=with_port(2, errors={"symbol_error": 10 + found}))] == [
        "network.hca_errors"
    ] * found


def test_machine_outside_the_common_network() -> None:
    lonely = of([Interface("eth5", ("10.7.0.3/24",), 9000)], PORTS, "10.0.0.3")
    assert only("network.interface", "c", c=lonely) == (
        "no interface has the machine's address, or one in a network common to all machines (with addresses: eth5)"
    )
    both = of([Interface("eth0", ("10.0.0.3/24",), 9000), Interface("eth5", ("10.7.0.3/24",), 9000)], PORTS, "10.7.0.3")
    assert only("network.subnet", "c", c=both) == (
        "its address 10.7.0.3 is not in 10.0.0.0/24, the network common to all machines"
    )
