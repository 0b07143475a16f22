# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks network.*, without that of host names: proxies, HCAs and interfaces, compared on the controller."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from ..argus.common.findings import Finding
from ..network.derive import DERIVED_VARIABLES, HcaClass, Host, Network, common_network, derive, hca_class
from ..network.interfaces import ETHERNET
from .checks import Context, Problem

# Every cable has some errors after a restart of its switch. A bad cable has many times the median of all cables.
FEW_ERRORS, MEDIAN_FACTOR = 10, 10


def network_hosts(contexts: Mapping[str, Context]) -> dict[str, Host]:
    """Return the machines whose network nodes use."""
    return {
        name: Host(machine.interfaces, machine.hcas, len(machine.gpus), expected.address, expected.trains)
        for name, machine, expected in ((name, context.machine, context.expected) for name, context in contexts.items())
        if expected.address
    }


def derived_environment(contexts: Mapping[str, Context]) -> dict[str, dict[str, str]]:
    """Return, by machine, the variables of NCCL and gloo that jobs get unless the inventory sets them."""
    hosts = network_hosts(contexts)
    return {name: settings.environment(hosts[name].hcas) for name, settings in derive(hosts).items()}


def network_findings(contexts: Mapping[str, Context]) -> list[Finding]:
    """Return the problems that show only when all machines are compared."""
    hosts = network_hosts(contexts)
    derived = derive(hosts)
    fast = hca_class(hosts.values())
    addresses = sorted({"127.0.0.1", *(host.address for host in hosts.values())})
    findings = [*_interface_findings(hosts, derived), *_mtu_findings(hosts, derived)]
    findings += [*_error_counter_findings(hosts), *_hca_count_findings(derived)]
    for name, host in hosts.items():
        problems = [*_hca_problems(host, derived[name], fast), *_gid_problems(derived[name])]
        problems += _proxy_problems(contexts[name].machine.proxies, addresses)
        findings += [problem.finding(name) for problem in problems]
    return findings


def _most_common(values: Iterable[int]) -> int:
    """Return the most common value; of several that are equally common, the largest. 0 without values."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value), default=0)


def _hca_problems(host: Host, derived: Network, fast: HcaClass | None) -> Iterator[Problem]:
    if fast is None or not host.trains:
        return
    if not derived.hcas:
        kind = f"{fast.link_layer} at {fast.rate_gbit:g} Gbit/s"
        active = ", ".join(f"{hca.device} at {hca.rate_gbit:g} Gbit/s" for hca in host.hcas if hca.up)
        problem = f"no active HCA port of {kind}, which other machines have (active: {active or 'none'})"
        yield Problem("network.hca_missing", problem)
        return
    for hca in host.hcas:
        # A slower Ethernet port is usually for storage.
        is_alike = hca.link_layer == fast.link_layer != ETHERNET
        if hca.up and is_alike and 0 < hca.rate_gbit < fast.rate_gbit:
            yield Problem(
                "network.hca_rate",
                f"{hca.device} port {hca.port} runs at {hca.rate_gbit:g} Gbit/s, expected {fast.rate_gbit:g}: "
                "jobs do not use it",
            )


def _hca_count_findings(derived: Mapping[str, Network]) -> Iterator[Finding]:
    counts = {name: len(settings.hcas) for name, settings in derived.items() if settings.hcas}
    usual = _most_common(counts.values())
    for name, count in counts.items():
        if count < usual:
            problem = f"{count} HCA ports of the fast network, expected {usual} as on most machines"
            yield Problem("network.hca_number", problem).finding(name)


def _gid_problems(derived: Network) -> Iterator[Problem]:
    roce = [hca for hca in derived.hcas if hca.link_layer == ETHERNET]
    without = [hca.device for hca in roce if hca.gid_index is None]
    if without:
        yield Problem("network.gid", f"no GID of RoCE v2 over IPv4 on {', '.join(without)}")
    elif roce and derived.gid_index is None:
        listed = ", ".join(f"{hca.device} {hca.gid_index}" for hca in roce)
        yield Problem("network.gid_index", f"the GID of RoCE v2 over IPv4 has different indexes: {listed}")


def _error_counter_findings(hosts: Mapping[str, Host]) -> Iterator[Finding]:
    ports = [(name, hca) for name, host in hosts.items() for hca in host.hcas]
    for counter in sorted({counter for _name, hca in ports for counter in hca.errors}):
        usual = median(hca.errors.get(counter, 0) for _name, hca in ports)
        for name, hca in ports:
            count = hca.errors.get(counter, 0)
            if count > max(FEW_ERRORS, MEDIAN_FACTOR * usual):
                problem = f"{hca.device} port {hca.port} counts {count} x {counter}, the others about {usual:g}"
                yield Problem("network.hca_errors", problem).finding(name)


def _interface_findings(hosts: Mapping[str, Host], derived: Mapping[str, Network]) -> Iterator[Finding]:
    shared = common_network(hosts.values())
    for name, host in hosts.items():
        address = derived[name].address
        if not derived[name].interface:
            several = [interface.name for interface in host.interfaces if interface.addresses and not interface.virtual]
            text = "no interface has the machine's address, or one in a network common to all machines "
            yield Problem("network.interface", f"{text}(with addresses: {', '.join(several) or 'none'})").finding(name)
        elif shared and ipaddress.ip_address(address) not in shared:
            text = f"its address {address} is not in {shared}, the network common to all machines"
            yield Problem("network.subnet", text).finding(name)


def _mtu_findings(hosts: Mapping[str, Host], derived: Mapping[str, Network]) -> Iterator[Finding]:
    sizes = {
        name: interface.mtu
        for name, host in hosts.items()
        for interface in host.interfaces
        if interface.name == derived[name].interface
    }
    usual = _most_common(sizes.values())
    for name, mtu in sizes.items():
        if mtu != usual:
            problem = f"{derived[name].interface} has MTU {mtu}, expected {usual} as on most machines"
            yield Problem("network.mtu", problem).finding(name)


def _proxy_problems(proxies: Mapping[str, str], addresses: Iterable[str]) -> Iterator[Problem]:
    named = [name for name in proxies if name != "no_proxy"]
    excluded = [part.strip() for part in proxies.get("no_proxy", "").split(",")]
    missing = [address for address in addresses if not any(_excludes(part, address) for part in excluded)]
    if named and missing:
        more = f" and {len(missing) - 3} others" if len(missing) > 3 else ""
        yield Problem(
            "network.proxy",
            f"{', '.join(named)} is set, and no_proxy leaves out {', '.join(missing[:3])}{more}: connections "
            "within the cluster may go to the proxy",
        )


def _excludes(part: str, address: str) -> bool:
    """Whether a part of no_proxy excludes an address: "*", the address itself or its network."""
    if part in ("*", address):
        return True
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(part, strict=False)
    except ValueError:
        return False


def hardware_cells(contexts: Mapping[str, Context]) -> dict[str, dict[str, str]]:
    """Return the cells of the hardware table by machine and title. Values are marked as set or derived."""
    hosts = network_hosts(contexts)
    env = {name: context.expected.network_env for name, context in contexts.items()}
    return {name: _cells_of(net, env[name], hosts[name]) for name, net in derive(hosts).items()}


def _cells_of(derived: Network, inventory_env: Mapping[str, str], host: Host) -> dict[str, str]:
    environment = {**derived.environment(host.hcas), **inventory_env}
    rate = f"{len(derived.hcas)} x {derived.rate_gbit:g} Gbit/s" if derived.hcas else ""
    shown = {
        name: f"{environment[name]} {'(set)' if name in inventory_env else '(derived)'}"
        for name in DERIVED_VARIABLES
        if name in environment
    }
    return {"rate": rate, "address": derived.address or host.address, **shown}
