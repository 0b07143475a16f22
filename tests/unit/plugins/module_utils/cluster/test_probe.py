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
from ansible_collections.argus.verl.plugins.module_utils.cluster import engine as engines
from ansible_collections.argus.verl.plugins.module_utils.cluster import probe as probes
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import DeviceFile
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import EngineError, EngineStatus
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.probe import Probe, proxies_of
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import Hca
from samples import RECORDED, nvidia_smi, recorded

Answer = tuple[int, str, str]


def answering(answers: dict[str, Answer]) -> probes.Run:
    """Return a runner that knows command lines by their beginning; any other program is not installed."""

    def run(argv: Sequence[str]) -> Answer:
        line = " ".join(argv)
        found = [answer for beginning, answer in answers.items() if line.startswith(beginning)]
        return found[0] if found else (engines.NOT_INSTALLED, "", f"{argv[0]}: not found")

    return run


# --- GPUs


def test_broken_driver_is_an_error() -> None:
    broken = answering({"nvidia-smi": (18, recorded("nvidia_smi_mismatch.txt"), "")})
    gpus, error = Probe(run=broken).gpus()
    assert gpus == [] and Probe(run=answering({})).gpus() == ([], None)
    assert error == "Failed to initialize NVML: Driver/library version mismatch NVML library version: 550.144"


# --- HCAs


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """An InfiniBand device without a GID table, one with RoCE, and one with two ports and one function."""
    devices = tmp_path / "sys/class/infiniband"
    write(devices / "mlx5_0/ports/1/state", "4: ACTIVE\n")
    write(devices / "mlx5_0/device/net/ib0/dev_port", "0\n")
    write(devices / "mlx5_1/ports/1/state", "1: DOWN\n")
    write(devices / "mlx5_1/ports/1/gid_attrs/ndevs/0", "enp9s0np0\n")
    write(devices / "mlx4_0/ports/1/state", "2: INIT\n")
    write(devices / "mlx4_0/ports/2/state", "4: ACTIVE\n")
    write(devices / "mlx4_0/device/net/ib8/dev_port", "0\n")
    write(devices / "mlx4_0/device/net/ib9/dev_port", "1\n")
    write(devices / "mlx5_9/ports/1/state", "4: ACTIVE\n")
    return tmp_path


def test_sysfs_is_read_when_ibdev2netdev_lists_nothing(sysfs: Path) -> None:
    expected = [
        Hca("mlx4_0", 1, "ib8", "down"),
        Hca("mlx4_0", 2, "ib9", "up"),
        Hca("mlx5_0", 1, "ib0", "up"),
        Hca("mlx5_1", 1, "enp9s0np0", "down"),
        Hca("mlx5_9", 1, None, "up"),
    ]
    assert Probe(run=answering({}), root=sysfs).hcas() == expected
    # Installed, but without IPoIB it lists nothing.
    assert Probe(run=answering({"ibdev2netdev": (0, "", "")}), root=sysfs).hcas() == expected
    listed = answering({"ibdev2netdev": (0, recorded("ibdev2netdev.txt"), "")})
    assert len(Probe(run=listed, root=sysfs).hcas()) == 6
    assert Probe(run=answering({}), root=sysfs / "empty").hcas() == []


# --- Memory and mounts


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path / "proc/self/mountinfo", recorded("mountinfo.txt"))
    write(tmp_path / "proc/meminfo", recorded("meminfo.txt"))
    (tmp_path / "private").mkdir()
    return tmp_path


@pytest.mark.parametrize("limit_file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_memory_is_limited_by_the_container(tree: Path, limit_file: str) -> None:
    assert Probe(root=tree).memory() == 2113958512 * 1024
    write(tree / "sys/fs/cgroup" / limit_file, "1099511627776\n")
    assert Probe(root=tree).memory() == 1099511627776
    write(tree / "sys/fs/cgroup" / limit_file, "max\n")
    assert Probe(root=tree).memory() == 2113958512 * 1024


def test_existing_and_missing_paths(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "shared").symlink_to("private")
    there, link, missing = Probe(root=tree).paths(["/private", "/shared", "/private/models/qwen/x"])
    assert (there.exists, there.fstype, there.writable, there.error) == (True, "nfs4", True, None)
    assert (link.exists, link.mount_point) == (True, "/private")
    # It is on the mount of its nearest existing parent.
    assert (missing.path, missing.exists, missing.mount_point) == ("/private/models/qwen/x", False, "/private")
    # Free space is that of users other than root.
    space = os.statvfs_result((4096, 10, 7, 5, 3, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: space)
    # Faked, because root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.W_OK | os.X_OK and path != tree / "private")
    assert [state.writable for state in Probe(root=tree).paths(["/private", "/"])] == [False, True]
    (there,) = Probe(root=tree).paths(["/private"])
    assert (there.free_bytes, Probe(root=tree).shm_bytes()) == (3 * 10, 70)


def test_dead_file_server_is_reported_without_hanging(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, threads = os.statvfs, []

    def hanging(path: Any) -> os.statvfs_result:
        threads.append(threading.current_thread())
        if Path(path) == tree / "private":
            time.sleep(60)
        if Path(path) == tree / "scratch":
            raise OSError(116, "Stale file handle")
        return asked(path)

    (tree / "scratch").mkdir()
    monkeypatch.setattr(os, "statvfs", hanging)
    begin = time.monotonic()
    dead, stale = Probe(root=tree, path_seconds=0.5).paths(["/private", "/scratch"])
    assert time.monotonic() - begin < 30
    assert dead.error and dead.error.startswith("storage.example.org:/export/private does not answer")
    assert (dead.exists, dead.fstype, dead.free_bytes) == (False, "nfs4", 0)
    assert (stale.exists, stale.error) == (False, "Stale file handle")
    # Otherwise the interpreter would wait for the thread that hangs.
    assert all(thread.daemon for thread in threads)


# --- Ports, and the complete answer


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_port_is_in_use_only_while_a_process_listens(family: int, address: str) -> None:
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        assert port not in Probe().listeners()
        listener.listen()
        assert port in Probe().listeners()
        # The side that closes first stays in TIME_WAIT.
        with socket.create_connection((address, port)):
            accepted, _address = listener.accept()
            accepted.close()
    assert port not in Probe().listeners()


FAKE_DOCKER = """#!/bin/sh
case "$1 $2" in
"info --format") cat "{recorded}/docker_info_nvidia.json" ;;
"ps -aq") echo 166ae458e00155cd2d05b4e5ff5d9de3095d0d729423afb3b755d13ab65e8656 ;;
"container inspect")
  cat "{recorded}/docker_container_inspect.json"; echo "Error: No such container: free" >&2; exit 1 ;;
"image inspect")
  if [ "$3" = argus-verl-cpu:0.1.0 ]; then cat "{recorded}/docker_image_inspect.json"
  else echo "[]"; echo "Error: No such image: $3" >&2; exit 1; fi ;;
*) echo "unexpected: $*" >&2; exit 64 ;;
esac
"""


@pytest.fixture
def fake_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "programs"
    write(programs / "docker", FAKE_DOCKER.format(recorded=RECORDED))
    write(tmp_path / "smi.xml", nvidia_smi(8))
    write(programs / "nvidia-smi", f'#!/bin/sh\ncat "{tmp_path}/smi.xml"\n')
    write(programs / "ibdev2netdev", f'#!/bin/sh\ncat "{RECORDED}/ibdev2netdev.txt"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


LISTENERS = (
    "  sl  local_address rem_address   st tx_queue rx_queue\n"
    "   0: 0100007F:2049 00000000:0000 0A 00000000:00000000 00:00000000\n"
    "   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000\n"
    "   2: 0100007F:2050 0100007F:0A0A 01 00000000:00000000 00:00000000\n"
)


def test_complete_machine_with_fake_programs(fake_programs: Path, tree: Path) -> None:
    (tree / "var/lib/docker").mkdir(parents=True)
    write(tree / "proc/net/tcp", LISTENERS)
    for name, mode in (("uverbs1", 0o600), ("uverbs0", 0o666), ("rdma_cm", 0o666)):
        write(tree / "dev/infiniband" / name, "")
        (tree / "dev/infiniband" / name).chmod(mode)
    machine = Probe(root=tree).machine(
        cluster="mvp",
        names=["mvp-ray-head", "free"],
        images=["argus-verl-cpu:0.1.0", "other:1"],
        paths=["/private"],
    )
    assert (machine.cluster, machine.python, machine.missing_packages) == ("mvp", sys.executable, [])
    assert (len(machine.gpus), machine.gpus[0].memory_mib, machine.gpus_error) == (8, 143771, None)
    assert [mount.fstype for mount in machine.mounts] == ["nfs4"]
    assert machine.disk
    assert (machine.disk.path, machine.disk.mount_point) == ("/var/lib/docker", "/var/lib/docker")
    assert machine.memory_bytes == 2113958512 * 1024
    assert (machine.engine.name, machine.engine.status, machine.engine.nvidia) == ("docker", EngineStatus.OK, True)
    assert list(machine.containers) == ["mvp-ray-head"]
    assert machine.containers["mvp-ray-head"].labels["argus.verl.role"] == "head"
    image = machine.images["argus-verl-cpu:0.1.0"]
    assert image and image.labels == {"argus.verl.inputs": "c58f612840dcfcdb"}
    assert machine.images["other:1"] is None
    assert machine.ports_in_use == [22, 8265]
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
    machine = Probe(root=tree).machine(cluster="mvp")
    assert (machine.ephemeral_ports, machine.reserved_ports) == ((32768, 60999), [(20000, 21999), (33000, 33000)])


def test_an_engine_that_fails_and_none(fake_programs: Path, tree: Path) -> None:
    write(fake_programs / "docker", FAKE_DOCKER.format(recorded=RECORDED).replace('"ps -aq")', '"never")'))
    machine = Probe(root=tree).machine(cluster="mvp", images=["x:1"])
    assert (machine.engine.status, machine.engine.version) == (EngineStatus.FAILED, "20.10.24+dfsg1")
    assert (machine.containers, machine.images) == ({}, {})
    # No command of it runs.
    write(fake_programs / "docker", "#!/bin/sh\nexit 64\n")
    machine = Probe(root=tree).machine(cluster="mvp", engine="none", images=["x:1"])
    assert (machine.engine.status, machine.engine.error) == (EngineStatus.NONE, None)
    assert machine.images == {"x:1": None}
    assert (machine.ephemeral_ports, machine.reserved_ports, machine.rdma_devices) == (None, [], ())
    assert machine.disk and machine.disk.path == "/tmp"


def test_containers_are_found_by_label_or_by_name() -> None:
    inspected = (0, recorded("docker_container_inspect.json"), "")
    head = "166ae458e00155cd2d05b4e5ff5d9de3095d0d729423afb3b755d13ab65e8656"
    for listed, name, there in ((f"{head}\n", "free", "mvp-ray-head"), ("", "mvp-ray-worker-0", "mvp-ray-worker-0")):
        run = answering({"docker ps": (0, listed, ""), "docker container": inspected})
        assert list(Probe(run=run).containers("docker", "mvp", [name])) == [there]
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
        found, problem = Probe(run=run).xids()
        # Without rights, it ends with 0 and is empty.
        assert (len(found), problem == "") == (xids, bool(xids))
