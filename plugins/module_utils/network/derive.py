# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives which interface, HCAs and GID index jobs use on each machine, from all machines of a cluster at once."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .interfaces import ETHERNET, GLOO_SOCKET_IFNAME, INFINIBAND, Hca, Interface, interface_with, ipv4_of

NCCL_IB_HCA = "NCCL_IB_HCA"
NCCL_IB_GID_INDEX = "NCCL_IB_GID_INDEX"
NCCL_SOCKET_IFNAME = "NCCL_SOCKET_IFNAME"
DERIVED_VARIABLES = (NCCL_IB_HCA, NCCL_IB_GID_INDEX, NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)


@dataclass(frozen=True)
class Host:
    """What is known of one machine."""

    interfaces: Sequence[Interface]
    hcas: Sequence[Hca] = ()
    gpu_count: int = 0
    # The IP address at which the other machines reach it; empty if unknown.
    address: str = ""
    # Whether jobs use its GPUs. The HCAs of other machines, such as the head's, decide nothing.
    trains: bool = True


@dataclass(frozen=True)
class HcaClass:
    """The fast network of a cluster: the link layer and rate of the HCA ports that jobs use on all machines."""

    link_layer: str
    rate_gbit: float


@dataclass(frozen=True)
class Network:
    """What jobs on one machine use of its network."""

    # The active ports of the fast network.
    hcas: Sequence[Hca] = ()
    # For RoCE; None for InfiniBand, and if the ports differ.
    gid_index: int | None = None
    # The interface in the network common to all machines, and its address; empty without one.
    interface: str = ""
    address: str = ""

    @property
    def rate_gbit(self) -> float:
        return max((hca.rate_gbit for hca in self.hcas), default=0.0)

    def environment(self, all_hcas: Sequence[Hca]) -> dict[str, str]:
        """Return the variables of NCCL and gloo. all_hcas: the ports of the machine, also those that jobs leave out."""
        variables = {}
        if self.hcas:
            # Without "=", the names are prefixes: mlx5_1 would also match mlx5_10.
            variables[NCCL_IB_HCA] = "=" + ",".join(_nccl_name(hca, all_hcas) for hca in self.hcas)
        if self.gid_index is not None:
            variables[NCCL_IB_GID_INDEX] = str(self.gid_index)
        if self.interface:
            variables[NCCL_SOCKET_IFNAME] = f"={self.interface}"
            # Gloo compares whole names, and has no "=".
            variables[GLOO_SOCKET_IFNAME] = self.interface
        return variables


def _nccl_name(hca: Hca, all_hcas: Iterable[Hca]) -> str:
    ports = {other.port for other in all_hcas if other.device == hca.device}
    return hca.device if ports <= {hca.port} else f"{hca.device}:{hca.port}"


def derive(hosts: Mapping[str, Host]) -> dict[str, Network]:
    """Return what jobs use on each machine; the values of two machines may differ."""
    fast = hca_class(hosts.values())
    shared = common_network(hosts.values())
    derived = {}
    for name, host in hosts.items():
        interface, address = _reachable_interface(host, shared)
        hcas = used_hcas(host, fast) if fast else []
        derived[name] = Network(tuple(hcas), _gid_index(hcas), interface, address)
    return derived


def hca_class(hosts: Iterable[Host]) -> HcaClass | None:
    """Return the fast network: the class of the HCA ports that jobs use, or None without HCAs.

    Of each machine, its fastest class counts; of these, the one that most machines have wins. So one bad cable does not
    slow down the other machines, and a single machine with a faster adapter does not leave them without any.
    """
    fastest = [
        max(
            (HcaClass(hca.link_layer, hca.rate_gbit) for hca in _hcas_with_rate(host)),
            # At the same rate, InfiniBand wins: Ethernet ports beside it are uplinks, or for storage.
            key=lambda kind: (kind.rate_gbit, kind.link_layer == INFINIBAND),
        )
        for host in hosts
        if host.trains and _hcas_with_rate(host)
    ]
    counted = Counter(fastest)
    return max(counted, key=lambda kind: (counted[kind], kind.rate_gbit, kind.link_layer), default=None)


def _hcas_with_rate(host: Host) -> list[Hca]:
    return [hca for hca in host.hcas if hca.up and hca.rate_gbit]


def used_hcas(host: Host, fast: HcaClass) -> list[Hca]:
    """Return the active ports of a machine that belong to the fast network."""
    ports = [hca for hca in host.hcas if hca.up and HcaClass(hca.link_layer, hca.rate_gbit) == fast]
    uplinks = {interface.name for interface in host.interfaces if interface.uplink}
    without_uplinks = [hca for hca in ports if not (hca.link_layer == ETHERNET and hca.netdev in uplinks)]
    # The machine's uplink is left out only if the GPUs share the other adapters evenly, and not all of them: it may be
    # the only adapter.
    is_even_without = _is_even_share(len(without_uplinks), host.gpu_count)
    if without_uplinks and is_even_without and not _is_even_share(len(ports), host.gpu_count):
        ports = without_uplinks
    return sorted(ports, key=_sort_key)


def _is_even_share(port_count: int, gpu_count: int) -> bool:
    """Whether ports can be shared evenly among GPUs, or GPUs among ports."""
    return gpu_count > 0 and (port_count % gpu_count == 0 or gpu_count % port_count == 0)


def _sort_key(hca: Hca) -> tuple[str, int, int]:
    """Sort mlx5_10 after mlx5_9."""
    letters = hca.device.rstrip("0123456789")
    number = hca.device[len(letters) :]
    return letters, int(number or 0), hca.port


def _gid_index(hcas: Sequence[Hca]) -> int | None:
    indexes = {hca.gid_index for hca in hcas if hca.link_layer == ETHERNET}
    return indexes.pop() if len(indexes) == 1 else None


def common_network(hosts: Iterable[Host]) -> ipaddress.IPv4Network | None:
    """Return the IPv4 network in which every machine has its own address; None without one.

    Of several, it is the one with most addresses of the inventory, then the fastest, then the first by number.
    """
    hosts = list(hosts)
    networks = [_networks(host) for host in hosts]
    common = set.intersection(*map(set, networks)) if networks else set()
    # Bridges of container engines have one address on all machines, so they do not count.
    distinct = [net for net in common if len({ip for nets in networks for ip in nets[net][1]}) >= len(hosts)]
    addresses = [ipaddress.ip_address(host.address) for host in hosts if host.address]

    def rank(net: ipaddress.IPv4Network) -> tuple[int, float, int]:
        slowest = min(nets[net][0] for nets in networks)
        return -sum(address in net for address in addresses), -slowest, int(net.network_address)

    return min(distinct, key=rank, default=None)


def _networks(host: Host) -> dict[ipaddress.IPv4Network, tuple[float, tuple[str, ...]]]:
    """Return the networks of a machine, each with the speed of its interface and the machine's addresses in it."""
    networks: dict[ipaddress.IPv4Network, tuple[float, tuple[str, ...]]] = {}
    for interface in _usable(host.interfaces):
        for address in ipv4_of(interface):
            if address.network.prefixlen < 32:
                speed, addresses = networks.get(address.network, (0.0, ()))
                networks[address.network] = (max(speed, interface.speed_gbit), (*addresses, str(address.ip)))
    return networks


def _usable(interfaces: Iterable[Interface]) -> list[Interface]:
    return [interface for interface in interfaces if not interface.virtual and interface.state != "down"]


def _reachable_interface(host: Host, shared: ipaddress.IPv4Network | None) -> tuple[str, str]:
    """Return the interface that other machines reach, and its address; both "" without one."""
    addressed = interface_with(host.address, host.interfaces)
    if addressed:
        return addressed.name, host.address
    for interface in _usable(host.interfaces) if shared else ():
        for address in ipv4_of(interface):
            if address.network == shared:
                return interface.name, str(address.ip)
    return "", ""
