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


def test_without_nvidia_smi_there_are_no_gpus_and_no_error() -> None:
    assert Probe(run=answering({})).gpus() == ([], None)


def test_broken_driver_is_an_error() -> None:
    broken = answering({"nvidia-smi": (18, recorded("nvidia_smi_mismatch.txt"), "")})
    gpus, error = Probe(run=broken).gpus()
    assert gpus == []
    assert error == "Failed to initialize NVML: Driver/library version mismatch NVML library version: 550.144"


def test_lost_gpu_is_an_error_beside_the_other_gpus() -> None:
    lost = "Unable to determine the device handle for GPU7: 0000:DB:00.0: Unknown Error"
    gpus, error = Probe(run=answering({"nvidia-smi": (15, f"{nvidia_smi(7)}\n{lost}\n", "")})).gpus()
    assert (len(gpus), error) == (7, lost)


def test_processes_on_gpus_are_those_of_containers(tmp_path: Path) -> None:
    smi = (RECORDED.parent / "preflight" / "nvidia_smi_blackwell.xml").read_text()
    write(tmp_path / "proc/4242/cgroup", f"0::/docker/{'a' * 64}\n")
    (gpu,), _error = Probe(run=answering({"nvidia-smi": (0, smi, "")}), root=tmp_path).gpus()
    assert gpu.processes[0].container == "a" * 64


def test_the_journal_is_read_where_dmesg_is_forbidden() -> None:
    log = (RECORDED.parent / "preflight" / "kernel_log.txt").read_text()
    journal = answering({"dmesg": (1, "", "not permitted"), "journalctl": (0, log, "")})
    assert (len(Probe(run=journal).xids()[0]), Probe(run=journal).xids()[1]) == (3, "")
    # Without rights, it ends with 0 and is empty.
    neither = answering({"dmesg": (1, "", "not permitted"), "journalctl": (0, "", "")})
    assert Probe(run=neither).xids() == (
        [],
        "dmesg: not permitted; journalctl: exit code 0 without a message",
    )


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


def test_ibdev2netdev_takes_precedence_over_sysfs(sysfs: Path, tmp_path: Path) -> None:
    listed = answering({"ibdev2netdev": (0, recorded("ibdev2netdev.txt"), "")})
    assert len(Probe(run=listed, root=sysfs).hcas()) == 6
    assert Probe(run=answering({}), root=tmp_path / "empty").hcas() == []


def test_proxies_are_shown_without_passwords() -> None:
    environment = {"HTTPS_PROXY": "http://me:secret@proxy:3128", "no_proxy": "10.0.0.1", "grpc_proxy": "", "PATH": "x"}
    assert proxies_of(environment) == {"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1"}


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


def test_existing_and_missing_paths(tree: Path) -> None:
    there, missing = Probe(root=tree).paths(["/private", "/private/models/qwen/x"])
    assert (there.path, there.exists, there.mount_point, there.fstype) == ("/private", True, "/private", "nfs4")
    assert (there.writable, there.error) == (True, None)
    # It is on the mount of its nearest existing parent.
    assert (missing.path, missing.exists, missing.mount_point) == ("/private/models/qwen/x", False, "/private")


def test_free_space_is_that_of_users_other_than_root(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = os.statvfs_result((4096, 10, 7, 5, 3, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: space)
    (state,) = Probe(root=tree).paths(["/private"])
    assert state.free_bytes == 3 * 10
    assert Probe(root=tree).shm_bytes() == 70


def test_links_are_followed_to_their_mounts(tree: Path) -> None:
    (tree / "shared").symlink_to("private")
    (state,) = Probe(root=tree).paths(["/shared"])
    assert (state.exists, state.mount_point) == (True, "/private")


def test_path_without_write_permission_is_not_writable(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Faked, because root may write everywhere.
    used = os.W_OK | os.X_OK
    monkeypatch.setattr(os, "access", lambda path, mode: mode == used and Path(path) != tree / "private")
    assert [state.writable for state in Probe(root=tree).paths(["/private", "/"])] == [False, True]


def test_dead_file_server_is_reported_without_hanging(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = os.statvfs

    threads = []

    def hanging(path: Any) -> os.statvfs_result:
        threads.append(threading.current_thread())
        if Path(path) == tree / "private":
            time.sleep(60)
        return asked(path)

    monkeypatch.setattr(os, "statvfs", hanging)
    begin = time.monotonic()
    dead, alive = Probe(root=tree, path_seconds=2).paths(["/private", "/"])
    assert time.monotonic() - begin < 30
    assert dead.error == "storage.example.org:/export/private does not answer within 2 s"
    assert (dead.exists, dead.fstype, dead.free_bytes) == (False, "nfs4", 0)
    assert (alive.exists, alive.error) == (True, None)
    # Otherwise the interpreter would wait for the thread that hangs.
    assert all(thread.daemon for thread in threads)


def test_stale_handle_is_reported(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = os.statvfs

    def stale(path: Any) -> os.statvfs_result:
        if Path(path) == tree / "private":
            raise OSError(116, "Stale file handle")
        return asked(path)

    monkeypatch.setattr(os, "statvfs", stale)
    (state,) = Probe(root=tree).paths(["/private"])
    assert (state.exists, state.error) == (False, "Stale file handle")


# --- The engine


def test_podman_has_gpus_when_a_cdi_specification_lists_them(tmp_path: Path) -> None:
    run = answering({"podman info": (0, recorded("podman_info.json"), "")})
    write(tmp_path / "etc/cdi/other.yaml", "kind: vendor.example/card\n")
    assert Probe(run=run, root=tmp_path).engine("podman").nvidia is False
    write(tmp_path / "var/run/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert Probe(run=run, root=tmp_path).engine("podman").nvidia is True


def test_docker_ignores_cdi_unless_enabled_but_finds_the_hook(tmp_path: Path) -> None:
    run = answering({"docker info": (0, recorded("docker_info.json"), "")})
    write(tmp_path / "etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n")
    assert Probe(run=run, root=tmp_path).engine("docker").nvidia is False
    write(tmp_path / "usr/bin/nvidia-container-runtime-hook", "")
    assert Probe(run=run, root=tmp_path).engine("docker").nvidia is True
    # The hook belongs to docker.
    run = answering({"podman info": (0, recorded("podman_info.json"), "")})
    (tmp_path / "etc/cdi/nvidia.yaml").unlink()
    assert Probe(run=run, root=tmp_path).engine("podman").nvidia is False


def test_containers_are_found_by_label_or_by_name() -> None:
    inspected = (0, recorded("docker_container_inspect.json"), "")
    head = "166ae458e00155cd2d05b4e5ff5d9de3095d0d729423afb3b755d13ab65e8656"
    labelled = answering({"docker ps": (0, f"{head}\n", ""), "docker container": inspected})
    assert list(Probe(run=labelled).containers("docker", "mvp", ["free"])) == ["mvp-ray-head"]
    named = answering({"docker ps": (0, "", ""), "docker container": inspected})
    assert list(Probe(run=named).containers("docker", "mvp", ["mvp-ray-worker-0"])) == ["mvp-ray-worker-0"]


def test_other_failures_of_the_engine_are_errors() -> None:
    broken = answering({"docker": (1, "", "Error response from daemon: layer does not exist")})
    with pytest.raises(EngineError, match=r'"docker image inspect x:1" failed with exit code 1: .*layer does not'):
        Probe(run=broken).image("docker", "x:1")


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


def test_ports_of_connections(tree: Path) -> None:
    question = {"cluster": "mvp", "engine": "none"}
    machine = Probe(root=tree).machine(**question)
    assert (machine.ephemeral_ports, machine.reserved_ports, machine.ports_in_use) == (None, [], [])
    write(tree / "proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    write(tree / "proc/sys/net/ipv4/ip_local_reserved_ports", "20000-21999,33000\n")
    machine = Probe(root=tree).machine(**question)
    assert machine.ephemeral_ports == (32768, 60999)
    assert machine.reserved_ports == [(20000, 21999), (33000, 33000)]


def test_devices_of_rdma(tmp_path: Path) -> None:
    assert Probe(root=tmp_path).rdma_devices() == []
    for name, mode in (("uverbs1", 0o600), ("uverbs0", 0o666), ("rdma_cm", 0o666)):
        write(tmp_path / "dev/infiniband" / name, "")
        (tmp_path / "dev/infiniband" / name).chmod(mode)
    uid, gid = os.getuid(), os.getgid()
    assert Probe(root=tmp_path).rdma_devices() == [
        DeviceFile("/dev/infiniband/uverbs0", 0o666, uid, gid),
        DeviceFile("/dev/infiniband/uverbs1", 0o600, uid, gid),
    ]


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
    write(tree / "dev/infiniband/uverbs0", "")
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
    assert [file.path for file in machine.rdma_devices] == ["/dev/infiniband/uverbs0"]
    assert (machine.uid, machine.gid) == (os.geteuid(), os.getegid())
    assert machine.user == getpass.getuser()
    # Ansible returns it as JSON, which filters read again.
    assert Machine.from_json(json.loads(json.dumps(machine.to_json()))) == machine


def test_engine_that_fails_after_info_is_reported(fake_programs: Path, tree: Path) -> None:
    write(fake_programs / "docker", FAKE_DOCKER.format(recorded=RECORDED).replace('"ps -aq")', '"never")'))
    machine = Probe(root=tree).machine(cluster="mvp", images=["x:1"])
    assert (machine.engine.status, machine.engine.version) == (EngineStatus.FAILED, "20.10.24+dfsg1")
    assert (machine.containers, machine.images) == ({}, {})
    assert "docker ps -aq" in str(machine.engine.error)


def test_without_an_engine_no_command_of_it_runs(fake_programs: Path, tree: Path) -> None:
    write(fake_programs / "docker", "#!/bin/sh\nexit 64\n")
    machine = Probe(root=tree).machine(cluster="mvp", engine="none", images=["x:1"])
    assert (machine.engine.status, machine.engine.error) == (EngineStatus.NONE, None)
    assert machine.images == {"x:1": None}
    assert machine.disk and machine.disk.path == "/tmp"
