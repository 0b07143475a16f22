"""sysfs trees written by hand without an HCA, after the kernel's Documentation/ABI/stable/sysfs-class-infiniband."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import (
    Hca,
    hcas_of_sysfs,
    parse_ibdev2netdev,
    with_sysfs,
)
from samples import recorded

V4, V4_OTHER = "0000:0000:0000:0000:0000:ffff:0a00:0014", "0000:0000:0000:0000:0000:ffff:0a00:0114"
LINK_LOCAL = "fe80:0000:0000:0000:0ac0:ebff:fe1c:7a2c"
UNUSED = "0000:0000:0000:0000:0000:0000:0000:0000"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def port(root: Path, device: str, link: str = "InfiniBand", rate: str = "400 Gb/sec (4X NDR)", number: int = 1) -> Path:
    path = root / "sys/class/infiniband" / device / "ports" / str(number)
    write(path / "state", "4: ACTIVE")
    write(path / "rate", rate)
    write(path / "link_layer", link)
    return path


def gid(of: Path, index: int, value: str, kind: str, netdev: str = "") -> None:
    write(of / "gids" / str(index), value)
    if kind:
        write(of / "gid_attrs/types" / str(index), kind)
    if netdev:
        write(of / "gid_attrs/ndevs" / str(index), netdev)


def test_infiniband_port_of_sysfs(tmp_path: Path) -> None:
    listed = [(port.device, port.netdev, port.state) for port in parse_ibdev2netdev(recorded("ibdev2netdev.txt"))]
    assert listed[1:3] == [("mlx5_1", "ib1", "up"), ("mlx5_2", "ib2", "down")] and len(listed) == 6
    directory = port(tmp_path, "mlx5_0")
    gid(directory, 0, "fe80:0000:0000:0000:b8ce:f603:0012:3456", "IB/RoCE v1")
    for name, count in (("link_downed", "3"), ("symbol_error", "0"), ("port_rcv_data", "999")):
        write(directory / "counters" / name, count)
    write(tmp_path / "sys/class/infiniband/mlx5_0/device/net/ib0/dev_port", "0")
    assert hcas_of_sysfs(tmp_path) == [
        Hca("mlx5_0", 1, "ib0", "up", 400, "InfiniBand", gid_index=None, errors={"link_downed": 3})
    ]


def test_gid_is_the_first_of_roce_v2_with_an_ipv4_address(tmp_path: Path) -> None:
    directory = port(tmp_path, "mlx5_0", "Ethernet")
    for index, value in enumerate((LINK_LOCAL, LINK_LOCAL, V4, V4, V4_OTHER)):
        gid(directory, index, value, "IB/RoCE v1" if index in (0, 2) else "RoCE v2", "eth2")
    gid(directory, 10, UNUSED, "")
    assert [hca.gid_index for hca in hcas_of_sysfs(tmp_path)] == [3]
    # GIDs go by number, and those of a VLAN do not count.
    other = port(tmp_path, "mlx5_1", "Ethernet")
    gid(other, 2, V4_OTHER, "RoCE v2", "eth2.100")
    gid(other, 10, V4, "RoCE v2", "eth2")
    gid(other, 9, V4, "RoCE v2", "eth2")
    present = with_sysfs(Hca("mlx5_1", 1, "eth2", "up"), tmp_path)
    assert (present.gid_index, present.rate_gbit, present.link_layer) == (9, 400, "Ethernet")
    absent = Hca("mlx5_7", 1, "ib0", "up")
    assert with_sysfs(absent, tmp_path) == absent
