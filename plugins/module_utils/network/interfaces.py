# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interfaces of a machine: names, addresses, MTU and rates."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# From linux/sockios.h: all IPv4 addresses of all interfaces, and the netmask of one.
SIOCGIFCONF, SIOCGIFNETMASK = 0x8912, 0x891B
IFREQ_BYTES, MOST_ADDRESSES = 40, 1024
# What engines and hypervisors make, on every machine alike.
VIRTUAL = re.compile(r"lo|docker.*|br-.*|veth.*|virbr.*|cni.*|flannel.*|cali.*|tunl.*|kube.*|dummy.*|podman.*|tap.*")


@dataclass(frozen=True)
class Interface:
    """A network interface.

    addresses: of IPv4, with their prefixes, such as "10.0.0.20/24".
    speed_gbit: 0 where the driver does not tell.
    uplink: whether a default route leads over it.
    """

    name: str
    addresses: Sequence[str] = ()
    mtu: int = 0
    speed_gbit: float = 0.0
    state: str = ""
    uplink: bool = False

    @property
    def virtual(self) -> bool:
        return VIRTUAL.fullmatch(self.name) is not None


def read_interfaces(root: Path) -> list[Interface]:
    """Read the interfaces of this machine; root is the directory that holds /proc and /sys."""
    return interfaces_of_sysfs(root, addresses_of_kernel())


def addresses_of_kernel() -> dict[str, list[str]]:
    """Return the IPv4 addresses of each interface, asked of the kernel itself."""
    found: dict[str, list[str]] = {}
    room = ctypes.create_string_buffer(IFREQ_BYTES * MOST_ADDRESSES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("iP", len(room), ctypes.addressof(room))
        length, _address = struct.unpack("iP", fcntl.ioctl(asking.fileno(), SIOCGIFCONF, request))
        for start in range(0, length, IFREQ_BYTES):
            entry = room.raw[start : start + IFREQ_BYTES]
            mask = fcntl.ioctl(asking.fileno(), SIOCGIFNETMASK, entry)[20:24]
            address = ipaddress.ip_interface(f"{socket.inet_ntoa(entry[20:24])}/{socket.inet_ntoa(mask)}")
            # A second address may have a label such as "eth0:1".
            name = entry[:16].split(b"\0")[0].decode().split(":")[0]
            found.setdefault(name, []).append(address.with_prefixlen)
    return found


def interfaces_of_sysfs(root: Path, addresses: Mapping[str, Sequence[str]]) -> list[Interface]:
    uplinks = default_interfaces(read(root / "proc/net/route"))
    found = []
    for entry in sorted((root / "sys/class/net").glob("*")):
        # Some drivers say -1 while there is no link, and reading fails with EINVAL for others.
        speed = read(entry / "speed")
        mtu = read(entry / "mtu")
        if not mtu:
            # Such as the file bonding_masters.
            continue
        found.append(
            Interface(
                name=entry.name,
                addresses=tuple(addresses.get(entry.name, ())),
                mtu=int(mtu) if mtu.isdigit() else 0,
                speed_gbit=int(speed) / 1000 if speed.isdigit() else 0.0,
                state=read(entry / "operstate"),
                uplink=entry.name in uplinks,
            )
        )
    return found


def default_interfaces(text: str) -> set[str]:
    rows = [line.split() for line in text.splitlines()[1:]]
    return {row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"}


def ipv4_of(interface: Interface) -> list[ipaddress.IPv4Interface]:
    """Return the IPv4 addresses that other machines can reach: no loopback, and none that a machine gives itself."""
    addresses = map(ipaddress.IPv4Interface, interface.addresses)
    return [each for each in addresses if not (each.is_loopback or each.is_link_local)]


def holder(address: str, interfaces: Iterable[Interface]) -> Interface | None:
    return next((each for each in interfaces if address in [str(own.ip) for own in ipv4_of(each)]), None)


def resolved(name: str) -> list[str]:
    """Return the addresses of a name; none if it has none."""
    with contextlib.suppress(OSError, UnicodeError):
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
    return []


def read(path: Path) -> str:
    """Return the stripped text, or nothing for a file that cannot be read, as parts of sysfs cannot."""
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""
