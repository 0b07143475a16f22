from __future__ import annotations

from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import (
    Interface,
    addresses_of_kernel,
    interface_with,
    interfaces_of_sysfs,
    ipv4_of,
    read_interfaces,
)

ROUTES = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "ib0\t00000A0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    # A host route to 0.0.0.0 is no default route.
    "ib1\t00000000\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n"
)


def tree(root: Path, name: str, **files: str) -> None:
    directory = root / "sys/class/net" / name
    directory.mkdir(parents=True)
    for file, text in files.items():
        (directory / file).write_text(f"{text}\n")


def test_interfaces(tmp_path: Path) -> None:
    tree(tmp_path, "eth0", mtu="9000", operstate="up", speed="25000")
    tree(tmp_path, "ib1", mtu="2044", operstate="down", speed="-1")
    (tmp_path / "sys/class/net/bonding_masters").write_text("bond0\n")
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text(ROUTES)
    assert interfaces_of_sysfs(tmp_path, {"eth0": ["10.0.0.20/24"]}) == [
        Interface("eth0", ("10.0.0.20/24",), 9000, 25.0, "up", uplink=True),
        Interface("ib1", (), 2044, 0.0, "down", uplink=False),
    ]
    local = Interface("eth0", ("127.0.0.1/8", "169.254.1.1/16", "10.0.0.20/24"))
    assert [str(address) for address in ipv4_of(local)] == ["10.0.0.20/24"]
    others = [Interface("eth1", ("10.0.0.200/24",)), local]
    assert interface_with("10.0.0.20", others) is local and interface_with("127.0.0.1", others) is None
    # The addresses are those of this machine.
    (eth0, _ib1) = read_interfaces(tmp_path)
    assert eth0.addresses == tuple(addresses_of_kernel().get("eth0", ()))
