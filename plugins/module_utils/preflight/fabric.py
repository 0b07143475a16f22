# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the network of machines, judged over all of them: the odd one out is the bad one."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import median

from ..argus.common.findings import ERROR, WARNING, Finding
from ..network.derive import Derived, HcaClass, Host, common_network, hca_class
from ..network.hcas import ETHERNET, Hca
from ..network.interfaces import Interface
from .checks import Check, Problem

# A cable has some errors after every restart of a switch. One that is bad has many more than the others.
FEW_ERRORS, TIMES_MEDIAN = 10, 10
COMPARE_CABLES = "compare cable, transceiver and switch port with those of the other ports"


HCA_RATE = Check(
    "network.hca_rate",
    WARNING,
    "the HCA ports of a machine have the rate of the fast network",
    f"{COMPARE_CABLES}; a port for storage is fine as it is",
)
HCA_MISSING = Check(
    "network.hca_missing",
    ERROR,
    "every machine with workers has ports of the fast network, if most have some",
    "bring its ports up: until then NCCL uses TCP between it and the others, or fails",
)
HCA_NUMBER = Check(
    "network.hca_number",
    WARNING,
    "all machines have the same number of ports of the fast network",
    "bring the missing ports up (ibdev2netdev, ibstat): the slowest machine sets the pace of a job",
)
HCA_ERRORS = Check(
    "network.hca_errors",
    WARNING,
    "no HCA port has far more errors than the others",
    f"{COMPARE_CABLES}; the counters begin when the driver is loaded",
)
GID_MISSING = Check(
    "network.gid",
    ERROR,
    "RoCE ports have a GID of RoCE v2 over IPv4",
    "give the interfaces of these ports an IPv4 address",
)
GID_INDEX = Check(
    "network.gid_index",
    WARNING,
    "these GIDs of a machine have one index",
    "make the addresses of these interfaces alike, or set NCCL_IB_GID_INDEX in ray_node_env: NCCL chooses now",
)
INTERFACE = Check(
    "network.interface",
    ERROR,
    "an interface carries the network common to all machines",
    "set ray_node_address to an address of the machine that the others reach, or set NCCL_SOCKET_IFNAME and "
    "GLOO_SOCKET_IFNAME in ray_node_env",
)
SUBNET = Check(
    "network.subnet",
    WARNING,
    "the addresses of all machines are in their common network",
    "check that the others reach it there (preflight_tier=standard shows who does), or correct ray_node_address",
)
MTU = Check(
    "network.mtu",
    ERROR,
    "the MTU is the same on all machines",
    "set the same MTU on all machines: large packets get lost between them, and connections hang",
)
FABRIC_CHECKS = (HCA_RATE, HCA_MISSING, HCA_NUMBER, HCA_ERRORS, GID_MISSING, GID_INDEX, INTERFACE, SUBNET, MTU)


def fabric_findings(hosts: Mapping[str, Host], derived: Mapping[str, Derived]) -> list[Finding]:
    """Return the problems of all machines, in the order of the machines."""
    fast = hca_class(hosts.values())
    found = [*_interfaces(hosts, derived), *_mtu(hosts, derived), *_counters(hosts), *_numbers(hosts, derived)]
    for name, host in hosts.items():
        problems = [*_hcas(host, derived[name], fast), *_gids(derived[name])]
        found += [problem.finding(name) for problem in problems]
    return found


def _hcas(host: Host, derived: Derived, fast: HcaClass | None) -> Iterator[Problem]:
    if fast is None or not host.trains:
        return
    kind = f"{fast.link_layer} at {fast.rate_gbit:g} Gbit/s"
    if not derived.hcas:
        active = ", ".join(f"{hca.device} at {hca.rate_gbit:g} Gbit/s" for hca in host.hcas if hca.up)
        yield Problem(
            HCA_MISSING, f"no active HCA port of {kind}, which other machines have (active: {active or 'none'})"
        )
        return
    for hca in host.hcas:
        if hca.up and hca.link_layer == fast.link_layer and 0 < hca.rate_gbit < fast.rate_gbit:
            if hca.link_layer == ETHERNET:
                # A slower Ethernet port is usually for storage.
                continue
            yield Problem(
                HCA_RATE,
                f"{hca.device} port {hca.port} runs at {hca.rate_gbit:g} Gbit/s, expected {fast.rate_gbit:g}: "
                "jobs do not use it",
            )


def _numbers(hosts: Mapping[str, Host], derived: Mapping[str, Derived]) -> Iterator[Finding]:
    numbers = {name: len(derived[name].hcas) for name, host in hosts.items() if host.trains and derived[name].hcas}
    counts = Counter(numbers.values())
    usual = max(counts, key=lambda number: (counts[number], number), default=0)
    for name, number in numbers.items():
        if number < usual:
            what = f"{number} HCA ports of the fast network, expected {usual} as on most machines"
            yield Problem(HCA_NUMBER, what).finding(name)


def _gids(derived: Derived) -> Iterator[Problem]:
    roce = [hca for hca in derived.hcas if hca.link_layer == ETHERNET]
    without = [hca.device for hca in roce if hca.gid_index is None]
    if without:
        yield Problem(GID_MISSING, f"no GID of RoCE v2 over IPv4 on {', '.join(without)}")
    elif roce and derived.gid_index is None:
        listed = ", ".join(f"{hca.device} {hca.gid_index}" for hca in roce)
        yield Problem(GID_INDEX, f"the GID of RoCE v2 over IPv4 has different indexes: {listed}")


def _counters(hosts: Mapping[str, Host]) -> Iterator[Finding]:
    ports = [(name, hca) for name, host in hosts.items() for hca in host.hcas]
    for counter in sorted({counter for _name, hca in ports for counter in hca.errors}):
        values = [hca.errors.get(counter, 0) for _name, hca in ports]
        limit = max(FEW_ERRORS, TIMES_MEDIAN * median(values))
        for name, hca in ports:
            if hca.errors.get(counter, 0) > limit:
                yield _counted(name, hca, counter, median(values))


def _counted(name: str, hca: Hca, counter: str, usual: float) -> Finding:
    what = f"{hca.device} port {hca.port} counts {hca.errors[counter]} x {counter}, the others about {usual:g}"
    return Problem(HCA_ERRORS, what).finding(name)


def _interfaces(hosts: Mapping[str, Host], derived: Mapping[str, Derived]) -> Iterator[Finding]:
    shared = common_network(hosts.values())
    for name, host in hosts.items():
        address = derived[name].address
        if not derived[name].interface:
            several = [each.name for each in host.interfaces if each.addresses and not each.virtual]
            what = "no interface has the machine's address, or one in a network common to all machines "
            yield Problem(INTERFACE, f"{what}(with addresses: {', '.join(several) or 'none'})").finding(name)
        elif shared and ipaddress.ip_address(address) not in shared:
            what = f"its address {address} is not in {shared}, the network common to all machines"
            yield Problem(SUBNET, what).finding(name)


def _interface_of(host: Host, derived: Derived) -> Interface | None:
    return next((each for each in host.interfaces if each.name == derived.interface), None)


def _mtu(hosts: Mapping[str, Host], derived: Mapping[str, Derived]) -> Iterator[Finding]:
    sizes = {name: each.mtu for name, host in hosts.items() if (each := _interface_of(host, derived[name]))}
    counts = Counter(sizes.values())
    if len(counts) < 2:
        return
    usual = max(counts, key=lambda mtu: (counts[mtu], mtu))
    for name, mtu in sizes.items():
        if mtu != usual:
            what = f"{derived[name].interface} has MTU {mtu}, expected {usual} as on most machines"
            yield Problem(MTU, what).finding(name)
