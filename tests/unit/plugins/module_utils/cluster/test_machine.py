from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster import engine as engines
from ansible_collections.argus.verl.plugins.module_utils.cluster import machine as probes
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import (
    EngineError,
    parse_containers,
    parse_engine_info,
    parse_image,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.hardware import (
    Gpu,
    Hca,
    parse_gpus,
    parse_ibdev2netdev,
    parse_meminfo,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Probe, Question, port_in_use
from ansible_collections.argus.verl.plugins.module_utils.cluster.mounts import mount_of, parse_mountinfo

RECORDED = Path(__file__).parents[3] / "fixtures" / "machine"
Answer = tuple[int, str, str]


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def answering(answers: dict[str, Answer]) -> probes.Run:
    """A runner that knows command lines by their beginning; what it does not know is not installed."""

    def run(argv: Sequence[str]) -> Answer:
        line = " ".join(argv)
        found = [answer for beginning, answer in answers.items() if line.startswith(beginning)]
        return found[0] if found else (engines.NOT_INSTALLED, "", f"{argv[0]}: not found")

    return run


# --- GPUs


def test_eight_gpus() -> None:
    gpus, strays = parse_gpus(recorded("nvidia_smi_h100.csv"))
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert gpus[7] == Gpu(7, "NVIDIA H100 80GB HBM3", "GPU-e13c9d06-b85a-5074-9f42-60d7e5a2b18f", 81559, "550.90.07")
    assert strays == []


def test_memory_that_the_driver_does_not_tell_is_zero_and_the_gpu_counts() -> None:
    gpus, strays = parse_gpus("0, NVIDIA GB10, GPU-1, [N/A], 580.95.05\n")
    assert (len(gpus), gpus[0].memory_mib, strays) == (1, 0, [])


def test_no_nvidia_smi_is_no_gpu_and_no_error() -> None:
    assert Probe(run=answering({})).gpus() == ([], None)


def test_broken_driver_is_an_error_and_not_zero_gpus() -> None:
    broken = answering({"nvidia-smi": (18, recorded("nvidia_smi_mismatch.txt"), "")})
    gpus, error = Probe(run=broken).gpus()
    assert gpus == []
    assert error == "Failed to initialize NVML: Driver/library version mismatch NVML library version: 550.144"


def test_failure_without_a_word_is_an_error_too() -> None:
    assert Probe(run=answering({"nvidia-smi": (9, "", "")})).gpus() == ([], "exit code 9 without a message")


@pytest.mark.parametrize("code", [0, 15])
def test_gpu_lost_from_the_bus_is_an_error_beside_the_others(code: int) -> None:
    gpus, error = Probe(run=answering({"nvidia-smi": (code, recorded("nvidia_smi_gpu_lost.csv"), "")})).gpus()
    assert len(gpus) == 7
    assert error == "Unable to determine the device handle for GPU7: 0000:DB:00.0: Unknown Error"


# --- HCAs


def test_ibdev2netdev_tells_up_and_down() -> None:
    ports = parse_ibdev2netdev(recorded("ibdev2netdev.txt"))
    assert [(port.device, port.netdev, port.state) for port in ports] == [
        ("mlx5_0", "ib0", "up"),
        ("mlx5_1", "ib1", "up"),
        ("mlx5_2", "ib2", "down"),
        ("mlx5_3", "ib3", "up"),
        ("mlx5_4", "ib4", "down"),
        ("mlx5_bond_0", "bond0", "up"),
    ]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """An InfiniBand device whose GID table cannot tell, one with RoCE, and one with two ports and one function."""
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


def test_sysfs_tells_when_ibdev2netdev_does_not(sysfs: Path) -> None:
    expected = [
        Hca("mlx4_0", 1, "ib8", "down"),
        Hca("mlx4_0", 2, "ib9", "up"),
        Hca("mlx5_0", 1, "ib0", "up"),
        Hca("mlx5_1", 1, "enp9s0np0", "down"),
        Hca("mlx5_9", 1, None, "up"),
    ]
    assert Probe(run=answering({}), root=sysfs).hcas() == (expected, "sysfs")
    # Installed, but without IPoIB it lists nothing.
    assert Probe(run=answering({"ibdev2netdev": (0, "", "")}), root=sysfs).hcas() == (expected, "sysfs")


def test_ibdev2netdev_goes_before_sysfs_and_nothing_is_none(sysfs: Path, tmp_path: Path) -> None:
    told = answering({"ibdev2netdev": (0, recorded("ibdev2netdev.txt"), "")})
    ports, source = Probe(run=told, root=sysfs).hcas()
    assert (len(ports), source) == (6, "ibdev2netdev")
    assert Probe(run=answering({}), root=tmp_path / "empty").hcas() == ([], "none")


# --- memory and mounts


@pytest.mark.parametrize(
    ("path", "mount_point", "fstype", "source", "access"),
    [
        ("/private", "/private", "nfs4", "storage.example.org:/export/private", "rw"),
        ("/private/jobs/x", "/private", "nfs4", "storage.example.org:/export/private", "rw"),
        ("/private/models/qwen", "/private/models", "nfs4", "storage.example.org:/export/private", "ro"),
        ("/privateer", "/", "ext4", "/dev/vda", "rw"),
        ("/", "/", "ext4", "/dev/vda", "rw"),
        ("/srv/bound root/a", "/srv/bound root", "ext4", "/dev/vda", "rw"),
        ("/scratch", "/scratch", "xfs", "/dev/md0", "ro"),
    ],
)
def test_longest_mount_and_of_two_the_later(path: str, mount_point: str, fstype: str, source: str, access: str) -> None:
    mount = mount_of(path, parse_mountinfo(recorded("mountinfo.txt")))
    assert mount is not None
    assert (mount.mount_point, mount.fstype, mount.source) == (mount_point, fstype, source)
    assert [option for option in mount.options if option in ("ro", "rw")] == [access]


def test_options_of_the_mount_and_of_its_file_system() -> None:
    mount = mount_of("/private/models", parse_mountinfo(recorded("mountinfo.txt")))
    assert mount is not None
    assert mount.options == ["ro", "relatime", "vers=4.2", "hard", "addr=10.0.0.2"]


def test_meminfo_in_bytes() -> None:
    known = parse_meminfo(recorded("meminfo.txt"))
    assert known["MemTotal"] == 2113958512 * 1024
    # It has no unit, hence it is no size.
    assert "HugePages_Total" not in known


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path / "proc/self/mountinfo", recorded("mountinfo.txt"))
    write(tmp_path / "proc/meminfo", recorded("meminfo.txt"))
    (tmp_path / "private").mkdir()
    return tmp_path


@pytest.mark.parametrize("limit_file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_memory_is_not_more_than_the_limit_of_the_container(tree: Path, limit_file: str) -> None:
    assert Probe(root=tree).memory() == (2113958512 * 1024, 2050000000 * 1024)
    write(tree / "sys/fs/cgroup" / limit_file, "1099511627776\n")
    assert Probe(root=tree).memory() == (1099511627776, 1099511627776)
    write(tree / "sys/fs/cgroup" / limit_file, "max\n")
    assert Probe(root=tree).memory() == (2113958512 * 1024, 2050000000 * 1024)


def test_paths_that_exist_and_that_do_not(tree: Path) -> None:
    space = os.statvfs(tree)
    there, missing = Probe(root=tree).paths(["/private", "/private/models/qwen/x"])
    assert (there.path, there.exists, there.mount_point, there.fstype) == ("/private", True, "/private", "nfs4")
    assert there.total_bytes == space.f_blocks * space.f_frsize
    assert (there.writable, there.error) == (True, None)
    # Where it would lie: on the mount of the parent that exists.
    assert (missing.path, missing.exists, missing.mount_point) == ("/private/models/qwen/x", False, "/private")
    assert missing.total_bytes == there.total_bytes


def test_a_link_is_followed_to_its_mount(tree: Path) -> None:
    (tree / "shared").symlink_to("private")
    (state,) = Probe(root=tree).paths(["/shared"])
    assert (state.exists, state.mount_point) == (True, "/private")


def test_what_the_system_refuses_to_write_is_not_writable(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By a stand-in, because the superuser may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tree / "private")
    assert [state.writable for state in Probe(root=tree).paths(["/private", "/"])] == [False, True]


def test_a_dead_file_server_is_reported_and_does_not_hang(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = os.statvfs

    def hanging(path: Any) -> os.statvfs_result:
        if Path(path) == tree / "private":
            time.sleep(3)
        return asked(path)

    monkeypatch.setattr(os, "statvfs", hanging)
    begin = time.monotonic()
    dead, alive = Probe(root=tree, path_seconds=0.2).paths(["/private", "/"])
    assert time.monotonic() - begin < 2
    assert dead.error == "storage.example.org:/export/private does not answer within 0.2 s"
    assert (dead.exists, dead.fstype, dead.free_bytes) == (False, "nfs4", 0)
    assert (alive.exists, alive.error) == (True, None)


def test_a_stale_handle_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = os.statvfs

    def stale(path: Any) -> os.statvfs_result:
        if Path(path) == tree / "private":
            raise OSError(116, "Stale file handle")
        return asked(path)

    monkeypatch.setattr(os, "statvfs", stale)
    (state,) = Probe(root=tree).paths(["/private"])
    assert (state.exists, state.error) == (False, "Stale file handle")


# --- the engine


def test_docker_without_and_with_gpus() -> None:
    plain = parse_engine_info("docker", 0, recorded("docker_info.json"), "").engine
    assert (plain.name, plain.status, plain.version) == ("docker", "ok", "20.10.24+dfsg1")
    assert (plain.error, plain.root_dir, plain.nvidia) == (None, "/var/lib/docker", False)
    assert parse_engine_info("docker", 0, recorded("docker_info_nvidia.json"), "").engine.nvidia is True
    assert parse_engine_info("docker", 0, recorded("docker_info_cdi.json"), "").engine.nvidia is True


@pytest.mark.parametrize("command", ["podman", "/usr/bin/podman", "docker"])
def test_podman_under_any_command(command: str) -> None:
    engine = parse_engine_info(command, 0, recorded("podman_info.json"), "").engine
    assert (engine.name, engine.status, engine.version) == ("podman", "ok", "4.9.4")
    assert engine.root_dir == "/home/ray/.local/share/containers/storage"


def test_podman_has_gpus_when_a_cdi_specification_names_them(tmp_path: Path) -> None:
    run = answering({"podman info": (0, recorded("podman_info.json"), "")})
    write(tmp_path / "etc/cdi/other.yaml", "kind: vendor.example/card\n")
    assert Probe(run=run, root=tmp_path).engine("podman").nvidia is False
    write(tmp_path / "var/run/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert Probe(run=run, root=tmp_path).engine("podman").nvidia is True


def test_docker_does_not_read_cdi_unless_switched_on_but_knows_the_hook(tmp_path: Path) -> None:
    run = answering({"docker info": (0, recorded("docker_info.json"), "")})
    write(tmp_path / "etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n")
    assert Probe(run=run, root=tmp_path).engine("docker").nvidia is False
    write(tmp_path / "usr/bin/nvidia-container-runtime-hook", "")
    assert Probe(run=run, root=tmp_path).engine("docker").nvidia is True


DENIED = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: "
    'Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.50/info": dial unix /var/run/docker.sock: connect: permission denied'
)


@pytest.mark.parametrize(
    ("code", "out", "err", "status", "says"),
    [
        (127, "", "docker: not found", "missing", '"docker" is not installed'),
        (1, '{"ID":"","ServerVersion":""}', DENIED, "denied", "permission denied"),
        (0, recorded("docker_info_no_daemon.json"), "", "no_answer", "Is the docker daemon running?"),
        (1, '{"ID":""}', "Cannot connect to the Docker daemon at unix:///x.", "no_answer", "unix:///x"),
        (124, "", "no answer within 30 s", "no_answer", "no answer within 30 s"),
        (125, "", "Error: cannot set up namespace", "failed", "exit code 125: Error: cannot set up namespace"),
    ],
)
def test_why_the_engine_cannot_be_reached(code: int, out: str, err: str, status: str, says: str) -> None:
    engine = parse_engine_info("docker", code, out, err).engine
    assert (engine.status, engine.version, engine.root_dir) == (status, None, None)
    assert says in str(engine.error)


def test_containers_of_docker() -> None:
    containers = parse_containers(recorded("docker_container_inspect.json"))
    head = containers["mvp-ray-head"]
    assert (head.state, head.started_at) == ("running", "2026-11-20T10:36:12.289023026Z")
    assert head.image_id == "sha256:f625180106df0dbcc3914b0c17be4c90e6ffcd77c625aab21a605224d1207055"
    assert (head.labels["argus.verl.cluster"], head.host_ports, head.host_network) == ("mvp", [8265], False)
    assert containers["mvp-ray-worker-0"].host_ports == []


def test_containers_of_podman_have_the_same_shape() -> None:
    worker = parse_containers(recorded("podman_container_inspect.json"))["mvp-ray-worker-0"]
    assert (worker.state, worker.started_at, worker.host_network) == ("created", None, True)
    assert worker.image_id == "sha256:9d1c6b7ae25dd1f0c8a5e4b3f2a1908f7e6d5c4b3a29181f0e9d8c7b6a5f4e3d"


def test_image() -> None:
    assert parse_image(recorded("docker_image_inspect.json")) == {
        "id": "sha256:f625180106df0dbcc3914b0c17be4c90e6ffcd77c625aab21a605224d1207055",
        "labels": {"argus.verl.inputs": "c58f612840dcfcdb"},
    }
    assert parse_image("[]\n") is None


def test_containers_are_asked_for_in_two_calls_and_a_free_name_is_no_error() -> None:
    calls: list[list[str]] = []

    def run(argv: Sequence[str]) -> Answer:
        calls.append(list(argv))
        if argv[1] == "ps":
            return 0, "a1\nb2\n", ""
        missing = "WARNING: Error loading config file: denied\nError response from daemon: No such container: free\n"
        return 1, recorded("docker_container_inspect.json"), missing

    found = Probe(run=run).containers("docker", "mvp", ["mvp-ray-head", "free"])
    assert calls == [
        ["docker", "ps", "-aq", "--no-trunc", "--filter", "label=argus.verl.cluster=mvp"],
        ["docker", "container", "inspect", "a1", "b2", "mvp-ray-head", "free"],
    ]
    # The worker was neither listed nor asked for: "inspect" had taken a name for the beginning of its id.
    assert list(found) == ["mvp-ray-head"]


def test_no_container_and_no_name_is_one_call() -> None:
    assert Probe(run=answering({"docker ps": (0, "", "")})).containers("docker", "mvp", []) == {}


def test_other_failures_of_the_engine_are_not_taken_for_absence() -> None:
    broken = answering({"docker": (1, "", "Error response from daemon: layer does not exist")})
    with pytest.raises(EngineError, match=r'"docker image inspect x:1" failed with exit code 1: .*layer does not'):
        Probe(run=broken).image("docker", "x:1")


@pytest.mark.parametrize(
    "message",
    [
        "Error: No such image: x:1",
        "Error response from daemon: no such image: x:1: No such image: x:1",
        "Error: x:1: image not known",
    ],
)
def test_absent_images_of_docker_and_podman(message: str) -> None:
    assert Probe(run=answering({"docker image": (1, "[]\n", message + "\n")})).image("docker", "x:1") is None


# --- ports and the whole


def test_port_in_use_only_while_somebody_listens() -> None:
    with socket.socket() as listener:
        # As servers do; the kernel asks it of both.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert port_in_use(port)
        # The side that closes first stays in TIME_WAIT.
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _address = listener.accept()
            accepted.close()
    assert not port_in_use(port)


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
    write(programs / "nvidia-smi", f'#!/bin/sh\ncat "{RECORDED}/nvidia_smi_h100.csv"\n')
    write(programs / "ibdev2netdev", f'#!/bin/sh\ncat "{RECORDED}/ibdev2netdev.txt"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


def test_a_whole_machine_of_fake_programs(fake_programs: Path, tree: Path) -> None:
    (tree / "var/lib/docker").mkdir(parents=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        machine = Probe(root=tree).machine(
            Question(
                cluster="mvp",
                names=["mvp-ray-head", "free"],
                images=["argus-verl-cpu:0.1.0", "other:1"],
                paths=["/private"],
                ports=[port],
            )
        )
    assert machine["cluster"] == "mvp"
    assert (len(machine["gpus"]), machine["gpus"][0]["memory_mib"], machine["gpus_error"]) == (8, 81559, None)
    assert (machine["hca_source"], machine["hcas"][2]["state"]) == ("ibdev2netdev", "down")
    assert machine["mounts"][0]["fstype"] == "nfs4"
    assert (machine["disk"]["path"], machine["disk"]["mount_point"]) == ("/var/lib/docker", "/var/lib/docker")
    assert machine["memory_bytes"] == 2113958512 * 1024
    assert machine["engine"] == {
        "name": "docker",
        "status": "ok",
        "version": "20.10.24+dfsg1",
        "error": None,
        "root_dir": "/var/lib/docker",
        "nvidia": True,
    }
    assert list(machine["containers"]) == ["mvp-ray-head"]
    assert machine["containers"]["mvp-ray-head"]["labels"]["argus.verl.role"] == "head"
    assert machine["images"]["argus-verl-cpu:0.1.0"]["labels"] == {"argus.verl.inputs": "c58f612840dcfcdb"}
    assert machine["images"]["other:1"] is None
    assert machine["ports_in_use"] == [port]
    assert (machine["uid"], machine["cpus"]) == (os.geteuid(), len(os.sched_getaffinity(0)))


def test_an_engine_that_fails_after_info_is_reported(fake_programs: Path, tree: Path) -> None:
    write(fake_programs / "docker", FAKE_DOCKER.format(recorded=RECORDED).replace('"ps -aq")', '"never")'))
    machine = Probe(root=tree).machine(Question(cluster="mvp", images=["x:1"]))
    assert (machine["engine"]["status"], machine["images"]) == ("failed", {})
    assert "docker ps -aq" in machine["engine"]["error"]


def test_without_an_engine_nothing_of_it_is_asked(fake_programs: Path, tree: Path) -> None:
    write(fake_programs / "docker", "#!/bin/sh\nexit 64\n")
    machine = Probe(root=tree).machine(Question(cluster="mvp", engine="none", images=["x:1"]))
    assert (machine["engine"]["status"], machine["engine"]["error"]) == ("none", None)
    assert (machine["images"], machine["disk"]["path"]) == ({"x:1": None}, "/tmp")


def test_programs_that_do_not_exist_or_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probes.run_command(["no-such-program-of-ours"])[0] == engines.NOT_INSTALLED
    monkeypatch.setattr(probes, "COMMAND_SECONDS", 0.1)
    assert probes.run_command(["sleep", "5"])[0] == engines.TIMED_OUT


@pytest.mark.skipif(shutil.which("docker") is None, reason="needs docker")
def test_the_real_docker_is_only_asked() -> None:
    """Reads only: other people's containers may run on this machine."""
    probe = Probe()
    if probe.engine("docker").status != engines.OK:
        pytest.skip("docker does not answer")
    name = "argus-verl-test-name-that-nobody-has"
    question = Question(cluster=name, names=[name], images=[f"{name}:1"], paths=["/"])
    machine = probe.machine(question)
    assert (machine["engine"]["error"], machine["containers"]) == (None, {})
    assert machine["images"] == {f"{name}:1": None}
    assert machine["mounts"][0]["mount_point"] == "/"
    assert machine["disk"]["total_bytes"] > 0
