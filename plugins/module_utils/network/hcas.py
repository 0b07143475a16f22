# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HCAs: the ports of InfiniBand and RoCE adapters, from ibdev2netdev and from sysfs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .interfaces import read

INFINIBAND = "InfiniBand"
ETHERNET = "Ethernet"
# Those that count broken links and cables; the kernel's documentation of sysfs-class-infiniband describes each.
ERROR_COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_errors",
)
ROCE_V2 = "RoCE v2"
# An IPv4 address as a GID: ::ffff:10.0.0.20.
_IPV4_GID = re.compile(r"(0000:){5}ffff(:[0-9a-f]{4}){2}")
_IBDEV2NETDEV = re.compile(r"^(?P<device>\S+) port (?P<port>\d+) ==> (?P<netdev>\S+) \((?P<state>Up|Down)\)", re.M)


@dataclass(frozen=True)
class Hca:
    """One port of a host channel adapter.

    netdev: None where the port has no network interface.
    state: "up" or "down".
    rate_gbit: 0 where it is unknown, as are empty texts.
    link_layer: "InfiniBand", or "Ethernet" for RoCE.
    gid_index: the index of the GID for RoCE v2 over IPv4; None without one.
    errors: the counters of errors that are not zero, since the driver was loaded.
    """

    device: str
    port: int
    netdev: str | None
    state: str
    rate_gbit: float = 0.0
    link_layer: str = ""
    gid_index: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)

    @property
    def up(self) -> bool:
        return self.state == "up"


def parse_ibdev2netdev(text: str) -> list[Hca]:
    """Return the ports that the tool lists: those with a network interface."""
    return [
        Hca(match["device"], int(match["port"]), match["netdev"], match["state"].lower())
        for match in _IBDEV2NETDEV.finditer(text)
    ]


def parse_rate(text: str) -> float:
    """Return Gbit/s of a text such as "400 Gb/sec (4X NDR)"; 0 if it is another."""
    match = re.match(r"(\d+(?:\.\d+)?) Gb/sec", text)
    return float(match[1]) if match else 0.0


def hcas_of_sysfs(root: Path) -> list[Hca]:
    """Return all ports, also those without a network interface, which ibdev2netdev does not list."""
    ports = []
    for port in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        device = port.parent.parent
        # Such as "4: ACTIVE"; a port in "2: INIT" has a cable, but no subnet manager.
        state = "up" if read(port / "state").endswith("ACTIVE") else "down"
        ports.append(described(Hca(device.name, int(port.name), _netdev(device, port), state), root))
    return ports


def described(hca: Hca, root: Path) -> Hca:
    """The port with what only sysfs knows of it."""
    port = root / "sys/class/infiniband" / hca.device / "ports" / str(hca.port)
    return replace(
        hca,
        rate_gbit=parse_rate(read(port / "rate")),
        link_layer=read(port / "link_layer"),
        gid_index=_gid_index(port, hca.netdev),
        errors=_errors(port),
    )


def _errors(port: Path) -> dict[str, int]:
    counted = {name: read(port / "counters" / name) for name in ERROR_COUNTERS}
    return {name: int(text) for name, text in counted.items() if text.isdigit() and int(text)}


def _gid_index(port: Path, netdev: str | None) -> int | None:
    """The first GID of RoCE v2 that is an IPv4 address of the port's own interface."""
    for entry in sorted((port / "gids").glob("*"), key=lambda entry: int(entry.name)):
        # Entries that are not in use read as zeros, and their type fails with EINVAL.
        if _IPV4_GID.fullmatch(read(entry)) and read(port / "gid_attrs/types" / entry.name) == ROCE_V2:
            of_gid = read(port / "gid_attrs/ndevs" / entry.name)
            # A VLAN on the port has GIDs in the same table.
            if not of_gid or not netdev or of_gid == netdev:
                return int(entry.name)
    return None


def _netdev(device: Path, port: Path) -> str | None:
    # With RoCE the table of GIDs has the name; on InfiniBand reading it fails with EINVAL.
    names = (read(entry) for entry in sorted((port / "gid_attrs" / "ndevs").glob("*")))
    known = next(filter(None, names), None)
    if known:
        return known
    interfaces = sorted((device / "device" / "net").glob("*"))
    # One PCI function with two ports has the interfaces of both; dev_port counts from 0.
    of_port = [entry for entry in interfaces if read(entry / "dev_port") == str(int(port.name) - 1)]
    if len(interfaces) == 1:
        of_port = interfaces
    return of_port[0].name if of_port else None
