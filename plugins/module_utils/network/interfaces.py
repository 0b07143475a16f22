# SPDX-License-Identifier: GPL-3.0-or-later
"""The network interfaces of a machine: names, IPv4 addresses, MTU and speed."""

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
IFREQ_BYTES, MAX_ADDRESSES = 40, 1024
# Interfaces that engines and hypervisors make, on every machine alike.
VIRTUAL = re.compile(r"lo|docker.*|br-.*|veth.*|virbr.*|cni.*|flannel.*|cali.*|tunl.*|kube.*|dummy.*|podman.*|tap.*")


@dataclass(frozen=True)
class Interface:
    """A network interface."""

    name: str
    # IPv4 addresses with their prefixes, such as "10.0.0.20/24".
    addresses: Sequence[str] = ()
    mtu: int = 0
    # In Gbit/s; 0 if the driver does not tell.
    speed_gbit: float = 0.0
    # As the kernel names it in operstate: "up", "down", "unknown" and others.
    state: str = ""
    # Whether a default route leads over it.
    uplink: bool = False

    @property
    def virtual(self) -> bool:
        return VIRTUAL.fullmatch(self.name) is not None


def read_interfaces(root: Path) -> list[Interface]:
    """Read the interfaces of this machine; root is the directory that holds /proc and /sys."""
    return interfaces_of_sysfs(root, addresses_of_kernel())


def addresses_of_kernel() -> dict[str, list[str]]:
    """Return the IPv4 addresses of each interface. They come from the kernel: a machine may lack the command ip."""
    addresses: dict[str, list[str]] = {}
    buffer = ctypes.create_string_buffer(IFREQ_BYTES * MAX_ADDRESSES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("iP", len(buffer), ctypes.addressof(buffer))
        length, _address = struct.unpack("iP", fcntl.ioctl(sock.fileno(), SIOCGIFCONF, request))
        for start in range(0, length, IFREQ_BYTES):
            entry = buffer.raw[start : start + IFREQ_BYTES]
            mask = fcntl.ioctl(sock.fileno(), SIOCGIFNETMASK, entry)[20:24]
            address = ipaddress.ip_interface(f"{socket.inet_ntoa(entry[20:24])}/{socket.inet_ntoa(mask)}")
            # A second address may have a label such as "eth0:1".
            name = entry[:16].split(b"\0")[0].decode().split(":")[0]
            addresses.setdefault(name, []).append(address.with_prefixlen)
    return addresses


def interfaces_of_sysfs(root: Path, addresses: Mapping[str, Sequence[str]]) -> list[Interface]:
    uplinks = default_route_interfaces(read_text(root / "proc/net/route"))
    interfaces = []
    for entry in sorted((root / "sys/class/net").glob("*")):
        # Some drivers say -1 while there is no link, and reading fails with EINVAL for others.
        speed = read_text(entry / "speed")
        mtu = read_text(entry / "mtu")
        if not mtu:
            # Such as the file bonding_masters.
            continue
        interfaces.append(
            Interface(
                name=entry.name,
                addresses=tuple(addresses.get(entry.name, ())),
                mtu=int(mtu) if mtu.isdigit() else 0,
                speed_gbit=int(speed) / 1000 if speed.isdigit() else 0.0,
                state=read_text(entry / "operstate"),
                uplink=entry.name in uplinks,
            )
        )
    return interfaces


def default_route_interfaces(text: str) -> set[str]:
    """Return the interfaces with a default route, from /proc/net/route: destination and mask are 0."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return {row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"}


def ipv4_of(interface: Interface) -> list[ipaddress.IPv4Interface]:
    """Return the IPv4 addresses that other machines can reach: no loopback, and none that a machine gives itself."""
    addresses = map(ipaddress.IPv4Interface, interface.addresses)
    return [address for address in addresses if not (address.is_loopback or address.is_link_local)]


def interface_with(address: str, interfaces: Iterable[Interface]) -> Interface | None:
    return next((nic for nic in interfaces if address in [str(ipv4.ip) for ipv4 in ipv4_of(nic)]), None)


def resolve(name: str) -> list[str]:
    """Return the IP addresses of a host name; none if it cannot be resolved."""
    with contextlib.suppress(OSError, UnicodeError):
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
    return []


def read_text(path: Path) -> str:
    """Return the stripped text of a file; "" if it cannot be read, as some files of sysfs."""
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""


# HCAs: the ports of InfiniBand and RoCE adapters, from ibdev2netdev and from sysfs.
