from __future__ import annotations

import getpass
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import DeviceFile
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import (
    NOT_INSTALLED,
    EngineError,
    EngineStatus,
    Run,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.probe import Probe, proxies_of
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import Hca
from samples import RECORDED, nvidia_smi, recorded

Answer = tuple[int, str, str]


def answering(answers: dict[str, Answer]) -> Run:
    """Return a runner that knows command lines by their beginning; any other program is not installed."""

    def run(argv: Sequence[str]) -> Answer:
        line = " ".join(argv)
        matches = [answer for beginning, answer in answers.items() if line.startswith(beginning)]
        return matches[0] if matches else (NOT_INSTALLED, "", f"{argv[0]}: not found")

    return run


def test_broken_driver_is_an_error() -> None:
    broken = answering({"nvidia-smi": (18, recorded("nvidia_smi_mismatch.txt"), "")})
    gpus, error = Probe(run=broken).gpus()
    assert gpus == [] and Probe(run=answering({})).gpus() == ([], None)
    assert error and "Driver/library version mismatch" in error


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_sysfs_is_read_when_ibdev2netdev_lists_nothing(tmp_path: Path) -> None:
    """An InfiniBand device without a GID table, one with RoCE, and one with two ports and one function."""
    ports = {"mlx5_0/1": "4: ACTIVE", "mlx5_1/1": "1: DOWN", "mlx4_0/1": "2: INIT", "mlx4_0/2": "4: ACTIVE"}
    devices = tmp_path / "sys/class/infiniband"
    for name, state in {**ports, "mlx5_9/1": "4: ACTIVE"}.items():
        write(devices / name.replace("/", "/ports/") / "state", f"{state}\n")
    write(devices / "mlx5_1/ports/1/gid_attrs/ndevs/0", "enp9s0np0\n")
    for name, number in (("mlx5_0/device/net/ib0", 0), ("mlx4_0/device/net/ib8", 0), ("mlx4_0/device/net/ib9", 1)):
        write(devices / name / "dev_port", f"{number}\n")
    expected = [
        Hca("mlx4_0", 1, "ib8", "down"),
        Hca("mlx4_0", 2, "ib9", "up"),
        Hca("mlx5_0", 1, "ib0", "up"),
        Hca("mlx5_1", 1, "enp9s0np0", "down"),
        Hca("mlx5_9", 1, None, "up"),
    ]
    # Installed, but without IPoIB it lists nothing.
    for answers in ({}, {"ibdev2netdev": (0, "", "")}):
        assert Probe(run=answering(answers), root=tmp_path).hcas() == expected
    assert Probe(run=answering({}), root=tmp_path / "empty").hcas() == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path / "proc/self/mountinfo", recorded("mountinfo.txt"))
    write(tmp_path / "proc/meminfo", recorded("meminfo.txt"))
    (tmp_path / "private").mkdir()
    return tmp_path


@pytest.mark.parametrize("limit_file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_memory_is_limited_by_the_container(tree: Path, limit_file: str) -> None:
    for text, memory in (("1099511627776\n", 1099511627776), ("max\n", 2113958512 * 1024)):
        write(tree / "sys/fs/cgroup" / limit_file, text)
        assert Probe(root=tree).memory_bytes() == memory


def test_existing_and_missing_paths(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "shared").symlink_to("private")
    existing, link, missing = Probe(root=tree).paths(["/private", "/shared", "/private/models/qwen/x"])
    assert (existing.exists, existing.fstype, existing.writable, existing.error) == (True, "nfs4", True, None)
    assert (link.exists, link.mount_point) == (True, "/private")
    # It is on the mount of its nearest existing parent.
    assert (missing.path, missing.exists, missing.mount_point) == ("/private/models/qwen/x", False, "/private")
    # Free space is that of users other than root.
    space = os.statvfs_result((4096, 10, 7, 5, 3, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: space)
    # Faked, because root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.W_OK | os.X_OK and path != tree / "private")
    assert [state.writable for state in Probe(root=tree).paths(["/private", "/"])] == [False, True]
    (existing,) = Probe(root=tree).paths(["/private"])
    assert (existing.free_bytes, Probe(root=tree).shm_bytes()) == (3 * 10, 70)


def test_dead_file_server_is_reported_without_hanging(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statvfs, threads = os.statvfs, []

    def hanging(path: Any) -> os.statvfs_result:
        threads.append(threading.current_thread())
        if Path(path) == tree / "private":
            time.sleep(60)
        if Path(path) == tree / "scratch":
            raise OSError(116, "Stale file handle")
        return statvfs(path)

    (tree / "scratch").mkdir()
    monkeypatch.setattr(os, "statvfs", hanging)
    dead, stale = Probe(root=tree, path_seconds=0.5).paths(["/private", "/scratch"])
    assert dead.error and "storage.example.org:/export/private" in dead.error
    assert (dead.exists, dead.fstype, dead.free_bytes) == (False, "nfs4", 0)
    assert (stale.exists, stale.error) == (False, "Stale file handle")
    # Otherwise the interpreter would wait for the thread that hangs.
    assert all(thread.daemon for thread in threads)


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_port_is_in_use_only_while_a_process_listens(family: int, address: str) -> None:
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        assert port not in Probe().listening_ports()
        listener.listen()
        assert port in Probe().listening_ports()
        # The side that closes first stays in TIME_WAIT.
        with socket.create_connection((address, port)):
            accepted, _address = listener.accept()
            accepted.close()
    assert port not in Probe().listening_ports()


HEAD = "166ae458e00155cd2d05b4e5ff5d9de3095d0d729423afb3b755d13ab65e8656"
PROGRAMS: dict[str, Answer] = {
    "docker info": (0, recorded("docker_info_nvidia.json"), ""),
    "docker ps": (0, HEAD, ""),
    "docker container inspect": (1, recorded("docker_container_inspect.json"), "Error: No such container: free"),
    "docker image inspect argus": (0, recorded("docker_image_inspect.json"), ""),
    "docker image inspect other": (1, "[]", "Error: No such image: other:1"),
    "nvidia-smi": (0, nvidia_smi(8), ""),
    "ibdev2netdev": (0, recorded("ibdev2netdev.txt"), ""),
}


def test_a_complete_machine(tree: Path) -> None:
    (tree / "var/lib/docker").mkdir(parents=True)
    for name, mode in (("uverbs1", 0o600), ("uverbs0", 0o666), ("rdma_cm", 0o666)):
        write(tree / "dev/infiniband" / name, "")
        (tree / "dev/infiniband" / name).chmod(mode)
    images = ["argus-verl-cpu:0.1.0", "other:1"]
    probe = Probe(run=answering(PROGRAMS), root=tree)
    machine = probe.machine(cluster="mvp", names=["mvp-ray-head", "free"], images=images, paths=["/private"])
    assert (machine.cluster, machine.python, machine.missing_packages) == ("mvp", sys.executable, [])
    assert (len(machine.gpus), machine.gpus[0].memory_mib, machine.gpus_error) == (8, 143771, None)
    assert [mount.fstype for mount in machine.mounts] == ["nfs4"] and len(machine.hcas) == 6
    assert machine.disk and (machine.disk.path, machine.disk.mount_point) == ("/var/lib/docker", "/var/lib/docker")
    assert machine.memory_bytes == 2113958512 * 1024
    assert (machine.engine.name, machine.engine.status, machine.engine.nvidia) == ("docker", EngineStatus.OK, True)
    assert list(machine.containers) == ["mvp-ray-head"]
    assert machine.containers["mvp-ray-head"].labels["argus.verl.role"] == "head"
    image = machine.images["argus-verl-cpu:0.1.0"]
    assert image and image.labels == {"argus.verl.inputs": "c58f612840dcfcdb"}
    assert machine.images["other:1"] is None
    owner = (os.getuid(), os.getgid())
    assert machine.rdma_devices == (
        DeviceFile("/dev/infiniband/uverbs0", 0o666, *owner),
        DeviceFile("/dev/infiniband/uverbs1", 0o600, *owner),
    )
    assert (machine.uid, machine.gid) == (os.geteuid(), os.getegid())
    assert machine.user == getpass.getuser()
    # Ansible returns it as JSON, which filters read again.
    assert Machine.from_json(json.loads(json.dumps(machine.to_json()))) == machine
    write(tree / "proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    write(tree / "proc/sys/net/ipv4/ip_local_reserved_ports", "20000-21999,33000\n")
    proxies = {"HTTPS_PROXY": "http://me:secret@proxy:3128", "no_proxy": "10.0.0.1", "grpc_proxy": "", "PATH": "x"}
    assert proxies_of(proxies) == {"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1"}
    machine = probe.machine(cluster="mvp")
    assert (machine.ephemeral_ports, machine.reserved_ports) == ((32768, 60999), [(20000, 21999), (33000, 33000)])


def test_an_engine_that_fails_and_none(tree: Path) -> None:
    def machine(engine: str, answer: Answer) -> Machine:
        probe = Probe(run=answering({"docker ps": answer, **PROGRAMS}), root=tree)
        return probe.machine(cluster="mvp", engine=engine, images=["x:1"])

    failed = machine("docker", (64, "", "unexpected"))
    assert (failed.engine.status, failed.engine.version) == (EngineStatus.FAILED, "20.10.24+dfsg1")
    assert (failed.containers, failed.images) == ({}, {})
    # Without an engine, none of its commands runs.
    none = machine("none", PROGRAMS["docker ps"])
    assert (none.engine.status, none.engine.error, none.images) == (EngineStatus.NONE, None, {"x:1": None})
    assert (none.ephemeral_ports, none.reserved_ports, none.rdma_devices) == (None, [], ())
    assert none.disk and none.disk.path == "/tmp"


def test_containers_are_found_by_label_or_by_name() -> None:
    inspected = (0, recorded("docker_container_inspect.json"), "")
    for listed, name, expected in ((f"{HEAD}\n", "free", "mvp-ray-head"), ("", "mvp-ray-worker-0", "mvp-ray-worker-0")):
        run = answering({"docker ps": (0, listed, ""), "docker container": inspected})
        assert list(Probe(run=run).containers("docker", "mvp", [name])) == [expected]
    with pytest.raises(EngineError):
        Probe(run=answering({"docker": (1, "", "Error: layer does not exist")})).image("docker", "x:1")


@pytest.mark.parametrize(
    ("engine", "specification", "hook", "nvidia"),
    [
        ("podman", "kind: nvidia.com/gpu", False, True),
        ("podman", "kind: vendor.example/card", False, False),
        # Docker ignores CDI unless enabled; the hook belongs to it.
        *(("docker", "kind: nvidia.com/gpu", False, False), ("docker", "", True, True), ("podman", "", True, False)),
    ],
)
def test_whether_an_engine_gives_gpus(
    tmp_path: Path, engine: str, specification: str, hook: bool, nvidia: bool
) -> None:
    run = answering({f"{engine} info": (0, recorded(f"{engine}_info.json"), "")})
    write(tmp_path / "var/run/cdi/nvidia.yaml", f"cdiVersion: 0.5.0\n{specification}\n")
    if hook:
        write(tmp_path / "usr/bin/nvidia-container-runtime-hook", "")
    assert Probe(run=run, root=tmp_path).engine(engine).nvidia is nvidia


def test_the_journal_is_read_where_dmesg_is_forbidden() -> None:
    log = (RECORDED.parent / "preflight" / "kernel_log.txt").read_text()
    for said, xids in ((log, 3), ("", 0)):
        run = answering({"dmesg": (1, "", "not permitted"), "journalctl": (0, said, "")})
        records, problem = Probe(run=run).xids()
        # Without rights, journalctl exits with 0 and prints nothing.
        assert (len(records), problem == "") == (xids, bool(xids))
