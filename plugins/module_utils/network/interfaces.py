# SPDX-License-Identifier: GPL-3.0-or-later
"""The network interfaces of a machine, and its HCAs (host channel adapters): the ports for InfiniBand and RoCE."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

# The variable with the name of gloo's interface; derive.py has those of NCCL.
GLOO_SOCKET_IFNAME = "GLOO_SOCKET_IFNAME"
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


# HCAs. Link layers, as sysfs names them.
INFINIBAND = "InfiniBand"
ETHERNET = "Ethernet"
# Counters of broken links and cables; the kernel's documentation of sysfs-class-infiniband describes each.
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
IPV4_GID = re.compile(r"(0000:){5}ffff(:[0-9a-f]{4}){2}")
IBDEV2NETDEV_LINE = re.compile(r"^(?P<device>\S+) port (?P<port>\d+) ==> (?P<netdev>\S+) \((?P<state>Up|Down)\)", re.M)


@dataclass(frozen=True)
class Hca:
    """One port of a host channel adapter."""

    # The adapter, such as "mlx5_0", and the number of the port on it, from 1.
    device: str
    port: int
    # The network interface of the port; None without one, as on InfiniBand without IPoIB.
    netdev: str | None
    # "up" or "down".
    state: str
    # In Gbit/s; 0 if unknown.
    rate_gbit: float = 0.0
    # INFINIBAND, or ETHERNET for RoCE; empty if unknown.
    link_layer: str = ""
    # The index of the GID for RoCE v2 over IPv4; None without one.
    gid_index: int | None = None
    # The values of ERROR_COUNTERS that are not zero, since the driver was loaded.
    errors: Mapping[str, int] = field(default_factory=dict)

    @property
    def up(self) -> bool:
        return self.state == "up"


def parse_ibdev2netdev(text: str) -> list[Hca]:
    """Return the ports that ibdev2netdev lists: those with a network interface."""
    return [
        Hca(match["device"], int(match["port"]), match["netdev"], match["state"].lower())
        for match in IBDEV2NETDEV_LINE.finditer(text)
    ]


def parse_rate(text: str) -> float:
    """Return the Gbit/s of a text such as "400 Gb/sec (4X NDR)"; 0 for any other text."""
    match = re.match(r"(\d+(?:\.\d+)?) Gb/sec", text)
    return float(match[1]) if match else 0.0


def hcas_of_sysfs(root: Path) -> list[Hca]:
    """Return all ports, also those without a network interface. root: the directory that holds /sys."""
    ports = []
    for port in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        device = port.parent.parent
        # Such as "4: ACTIVE"; a port in "2: INIT" has a cable, but no subnet manager.
        state = "up" if read_text(port / "state").endswith("ACTIVE") else "down"
        ports.append(with_sysfs(Hca(device.name, int(port.name), _netdev(device, port), state), root))
    return ports


def with_sysfs(hca: Hca, root: Path) -> Hca:
    """Return the port with its rate, link layer, GID index and errors from sysfs."""
    port = root / "sys/class/infiniband" / hca.device / "ports" / str(hca.port)
    return replace(
        hca,
        rate_gbit=parse_rate(read_text(port / "rate")),
        link_layer=read_text(port / "link_layer"),
        gid_index=_gid_index(port, hca.netdev),
        errors=_errors(port),
    )


def _errors(port: Path) -> dict[str, int]:
    counted = {name: read_text(port / "counters" / name) for name in ERROR_COUNTERS}
    return {name: int(text) for name, text in counted.items() if text.isdigit() and int(text)}


def _gid_index(port: Path, netdev: str | None) -> int | None:
    """Return the index of the first RoCE v2 GID that is an IPv4 address of the port's own interface."""
    for entry in sorted((port / "gids").glob("*"), key=lambda entry: int(entry.name)):
        # Entries that are not in use read as zeros, and their type fails with EINVAL.
        if IPV4_GID.fullmatch(read_text(entry)) and read_text(port / "gid_attrs/types" / entry.name) == ROCE_V2:
            gid_netdev = read_text(port / "gid_attrs/ndevs" / entry.name)
            # A VLAN on the port has GIDs in the same table.
            if not gid_netdev or not netdev or gid_netdev == netdev:
                return int(entry.name)
    return None


def _netdev(device: Path, port: Path) -> str | None:
    # With RoCE the table of GIDs has the name; on InfiniBand reading it fails with EINVAL.
    names = (read_text(entry) for entry in sorted((port / "gid_attrs" / "ndevs").glob("*")))
    name = next(filter(None, names), None)
    if name:
        return name
    interfaces = sorted((device / "device" / "net").glob("*"))
    # One PCI function with two ports has the interfaces of both; dev_port counts from 0.
    port_netdevs = [entry for entry in interfaces if read_text(entry / "dev_port") == str(int(port.name) - 1)]
    if len(interfaces) == 1:
        port_netdevs = interfaces
    return port_netdevs[0].name if port_netdevs else None
