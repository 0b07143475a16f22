# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of machines as jobs use it: names, proxies, and with the interfaces and HCAs of all what is derived."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..argus.common.findings import ERROR, WARNING, Finding
from ..network.derive import DERIVED, GLOO_SOCKET_IFNAME, Derived, Host, derive
from ..network.interfaces import holder
from .checks import Check, Context, Problem, Topic
from .fabric import FABRIC_CHECKS, fabric_findings
from .reader import Reader

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "no_proxy")
HOSTNAME = Check("network.hostname", ERROR, "the machine's own name does not resolve to a loopback, or gloo fails")
PROXY = Check(
    "network.proxy",
    WARNING,
    "proxies leave out the addresses of the cluster",
    "add the addresses of the cluster and 127.0.0.1 to no_proxy",
)


@dataclass(frozen=True)
class Names:
    """What a machine resolves its own name to, and the proxies in the environment of the session.

    proxies: by the name of the variable in small letters, without users and passwords.
    """

    hostname: str
    addresses: tuple[str, ...] = ()
    proxies: Mapping[str, str] = field(default_factory=dict)


def read(_reader: Reader) -> Names:
    hostname = socket.gethostname()
    return Names(hostname, tuple(resolved(hostname)), proxies_of(os.environ))


def resolved(name: str) -> list[str]:
    """Return the IPv4 addresses of a name, as this machine resolves it."""
    with contextlib.suppress(OSError, UnicodeError):
        answers = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
        return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
    return []


def proxies_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of proxies, without the user and the password of a URL."""
    known = {name.lower(): value for name, value in environment.items() if value}
    return {name: re.sub(r"[^/,]*@", "", known[name]) for name in PROXIES if name in known}


def judge(names: Names, context: Context) -> Iterator[Problem]:
    # With a network of its own, a container has other names; and the session's proxies are not those of the nodes.
    if not context.expected.address:
        return
    loopbacks = [each for each in names.addresses if ipaddress.ip_address(each).is_loopback]
    if loopbacks:
        interface = holder(context.expected.address, context.machine.interfaces)
        known = context.expected.network_env.get(GLOO_SOCKET_IFNAME) or (interface.name if interface else "")
        cure = f"jobs get {GLOO_SOCKET_IFNAME}={known}" if known else "gloo fails with connectFullMesh"
        yield Problem(
            HOSTNAME,
            f"its host name {names.hostname} resolves to {loopbacks[0]}, a loopback: {cure}",
            f"give the name the machine's address in /etc/hosts instead of {loopbacks[0]}",
            WARNING if known else ERROR,
        )


def host_of(context: Context) -> Host:
    """What the derivation has to know of a machine."""
    machine, expected = context.machine, context.expected
    return Host(machine.interfaces, machine.hcas, len(machine.gpus), expected.address, expected.trains)


def on_the_network(contexts: Mapping[str, Context]) -> dict[str, Host]:
    """The machines whose network nodes use."""
    return {name: host_of(context) for name, context in contexts.items() if context.expected.address}


def derived_environment(contexts: Mapping[str, Context]) -> dict[str, dict[str, str]]:
    """Return the variables of NCCL and gloo that jobs on each machine get unless the inventory sets them."""
    hosts = on_the_network(contexts)
    return {name: each.environment(hosts[name].hcas) for name, each in derive(hosts).items()}


def compare(answers: Mapping[str, Names], contexts: Mapping[str, Context]) -> Iterable[Finding]:
    hosts = on_the_network(contexts)
    yield from fabric_findings(hosts, derive(hosts))
    addresses = sorted({"127.0.0.1", *(host.address for host in hosts.values())})
    for name in hosts:
        yield from (problem.finding(name) for problem in _proxies(answers[name].proxies, addresses))


def _proxies(proxies: Mapping[str, str], addresses: Iterable[str]) -> Iterator[Problem]:
    named = [name for name in proxies if name != "no_proxy"]
    excluded = [part.strip() for part in proxies.get("no_proxy", "").split(",")]
    missing = [address for address in addresses if not any(_excludes(part, address) for part in excluded)]
    if named and missing:
        more = f" and {len(missing) - 3} others" if len(missing) > 3 else ""
        yield Problem(
            PROXY,
            f"{', '.join(named)} is set, and no_proxy leaves out {', '.join(missing[:3])}{more}: connections "
            "within the cluster may go to the proxy",
        )


def _excludes(part: str, address: str) -> bool:
    """Whether an entry of no_proxy stands for an address."""
    if part in ("*", address):
        return True
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(part, strict=False)
    except ValueError:
        return False


def cells(_answers: Mapping[str, Names], contexts: Mapping[str, Context]) -> dict[str, dict[str, str]]:
    """Cells of the hardware table; a value that the inventory sets is marked."""
    hosts = on_the_network(contexts)
    return {name: _row(each, contexts[name].expected.network_env, hosts[name]) for name, each in derive(hosts).items()}


def _row(derived: Derived, own: Mapping[str, str], host: Host) -> dict[str, str]:
    environment = {**derived.environment(host.hcas), **{name: own[name] for name in DERIVED if name in own}}
    rate = f"{len(derived.hcas)} x {derived.rate_gbit:g} Gbit/s" if derived.hcas else ""
    shown = {
        "rate": rate,
        "address": derived.address or host.address,
    }
    for name in DERIVED:
        if name in environment:
            shown[name] = f"{environment[name]} {'(set)' if name in own else '(derived)'}"
    return shown


TOPIC = Topic("network", Names, (HOSTNAME, PROXY, *FABRIC_CHECKS), read, judge, compare, cells=cells)
