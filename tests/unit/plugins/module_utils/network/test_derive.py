from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest
from ansible_collections.argus.verl.plugins.module_utils.network.derive import (
    HcaClass,
    Host,
    common_network,
    derive,
    hca_class,
    used_hcas,
)
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import ETHERNET, INFINIBAND, Hca, Interface

NDR, HDR = HcaClass(INFINIBAND, 400), HcaClass(INFINIBAND, 200)
ROCE = HcaClass(ETHERNET, 400)


def ib(number: int, rate: float = 400, **changes: object) -> Hca:
    return replace(Hca(f"mlx5_{number}", 1, f"ib{number}", "up", rate, INFINIBAND), **changes)  # type: ignore[arg-type]


def roce(number: int, rate: float = 400, gid: int | None = 3) -> Hca:
    return Hca(f"mlx5_{number}", 1, f"eth{number}", "up", rate, ETHERNET, gid)


def host(
    last: int = 20, hcas: list[Hca] | None = None, uplink: str = "eth0", gpus: int = 8, trains: bool = True
) -> Host:
    """A machine with one network, whose address ends with a number."""
    links = [
        Interface("docker0", ("172.17.0.1/16",), 1500, 0.0, "up"),
        Interface(uplink, (f"10.0.0.{last}/24",), 1500, 25.0, "up", uplink=True),
    ]
    return Host(links, [ib(number) for number in range(8)] if hcas is None else hcas, gpus, f"10.0.0.{last}", trains)


@pytest.mark.parametrize(
    ("ports", "named"),
    [
        ([ib(10), ib(9), ib(1)], "=mlx5_1,mlx5_9,mlx5_10"),
        # A device of which one port is used is named with it.
        ([ib(0), ib(0, 100, port=2), ib(1)], "=mlx5_0:1,mlx5_1"),
        ([ib(0), ib(1, state="down"), ib(2, 200)], "=mlx5_0"),
    ],
)
def test_names_of_ports(ports: list[Hca], named: str) -> None:
    assert derive({"a": host(hcas=ports)})["a"].environment(ports)["NCCL_IB_HCA"] == named


def test_values_of_machines_differ() -> None:
    """Also the interface: one machine has another name for it."""
    # As in the multi-node guide: eight of ten adapters, two of them beyond the first eight. Two are for storage.
    fast, storage = [ib(number) for number in (0, 1, 2, 3, 4, 5, 8, 9)], [roce(6, 100), roce(7, 100)]
    guide = derive({"a": host(20, [*reversed(fast), *storage]), "b": host(21, [*fast, *storage])})["a"]
    assert (guide.rate_gbit, guide.address) == (400, "10.0.0.20")
    assert guide.environment([*fast, *storage]) == {
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_8,mlx5_9",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    networks = derive({"a": host(20, [roce(0), roce(1)]), "b": host(21, [roce(4, gid=1)], uplink="enp9s0", gpus=1)})
    assert (networks["a"].gid_index, networks["b"].gid_index) == (3, 1)
    assert (networks["a"].interface, networks["b"].interface) == ("eth0", "enp9s0")
    assert networks["b"].environment(networks["b"].hcas) == {
        "NCCL_IB_HCA": "=mlx5_4",
        "NCCL_IB_GID_INDEX": "1",
        "NCCL_SOCKET_IFNAME": "=enp9s0",
        "GLOO_SOCKET_IFNAME": "enp9s0",
    }


def test_index_that_differs_between_ports_is_not_derived() -> None:
    assert derive({"a": host(hcas=[roce(0, gid=3), roce(1, gid=1)])})["a"].gid_index is None
    assert derive({"a": host(hcas=[roce(0, gid=None)])})["a"].gid_index is None
    # InfiniBand has no such index, even if a table has an entry.
    assert derive({"a": host(hcas=[ib(0, gid_index=3)])})["a"].gid_index is None


def test_class_is_that_of_most_machines() -> None:
    machines = [host(hcas=[ib(0)]), host(hcas=[ib(0)]), host(hcas=[ib(0, 200)])]
    assert hca_class(machines) == NDR
    assert hca_class([*machines, host(hcas=[ib(0, 200)]), host(hcas=[ib(0, 200)])]) == HDR
    # Infiniband beside Ethernet of the same rate is the fast network.
    assert hca_class([host(hcas=[roce(9), ib(0)])]) == hca_class([host(hcas=[ib(0), roce(9)])]) == NDR
    # A head and ports without a rate decide nothing.
    head, unknown = host(hcas=[ib(0, 800)], trains=False), host(hcas=[Hca("mlx5_0", 1, "ib0", "up")])
    assert hca_class([head, head, host(hcas=[ib(0)])]) == NDR
    assert hca_class([head]) is hca_class([unknown]) is None
    assert derive({"a": unknown})["a"].hcas == ()
    # Of two equally frequent classes, the faster one.
    assert hca_class(machines[1:]) == hca_class(machines[:0:-1]) == NDR


@pytest.mark.parametrize(
    ("gpus", "ports", "used"),
    [
        # Nine adapters for eight GPUs: the one with the default route is the uplink.
        *((8, 9, 8), (4, 5, 4)),
        # One for each GPU, or all; an unknown number of GPUs; uneven in any case.
        *((8, 8, 8), (8, 2, 2), (8, 1, 1), (1, 1, 1), (0, 9, 9), (8, 7, 7)),
    ],
)
def test_uplink_is_left_out_where_the_others_are_shared_evenly(gpus: int, ports: int, used: int) -> None:
    machine = host(hcas=[roce(number) for number in range(ports)], gpus=gpus)
    hcas = used_hcas(machine, ROCE)
    assert len(hcas) == used
    assert ("mlx5_0" in [hca.device for hca in hcas]) is (used == ports)
    # A port of InfiniBand with the default route is used.
    assert len(used_hcas(host(hcas=[ib(number) for number in range(9)], uplink="ib0"), NDR)) == 9


# --- The common network -----------------------------------------------------------------------------------------------


def at(*interfaces: Interface, address: str = "") -> Host:
    return Host(interfaces, address=address)


def test_bridges_with_one_address_everywhere_are_no_common_network() -> None:
    bridge = Interface("bridge7", ("10.88.0.1/16",), state="up")
    assert common_network([at(bridge), at(bridge)]) is None
    # A machine on its own may have any.
    assert common_network([at(bridge)]) == ip_network("10.88.0.0/16")
    assert common_network([]) is None
    assert common_network([at(Interface("eth0", ("10.0.0.1/24",), state="down"))]) is None
    assert common_network([at(Interface("docker0", ("172.17.0.1/16",)))]) is None


def dual_homed(last: int, address: str = "") -> Host:
    slow = Interface("eth0", (f"10.0.0.{last}/24",), speed_gbit=1, state="up")
    fast = Interface("eth1", (f"10.9.0.{last}/24",), speed_gbit=100, state="up")
    return at(slow, fast, address=address)


def test_network_of_the_inventory_comes_before_the_fastest() -> None:
    assert common_network([dual_homed(1), dual_homed(2)]) == ip_network("10.9.0.0/24")
    assert common_network([dual_homed(1, "10.0.0.1"), dual_homed(2)]) == ip_network("10.0.0.0/24")
    networks = derive({"a": dual_homed(1), "b": dual_homed(2)})
    assert (networks["b"].interface, networks["b"].address) == ("eth1", "10.9.0.2")
    # Without one, as with one subnet for each rack, a machine keeps its own address.
    racks = {
        "a": at(Interface("eth0", ("10.1.0.1/24",)), address="10.1.0.1"),
        "b": at(Interface("eth7", ("10.2.0.1/24",)), address="10.2.0.1"),
        "c": at(Interface("eth0", ("10.3.0.1/32",)), address="10.3.0.9"),
    }
    assert [network.interface for network in derive(racks).values()] == ["eth0", "eth7", ""]
    assert derive(racks)["c"].environment([]) == {}
