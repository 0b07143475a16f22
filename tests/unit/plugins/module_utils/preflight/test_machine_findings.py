"""What is wrong with one machine: its state, what is expected of it, and the findings, by key and severity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.node_process import NodeProcess
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import KFD, DeviceFile
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Engine, EngineStatus, Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.gpus import Gpu, Xid
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.ports import DASHBOARD_USE, PortRange
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import Process, Software, System
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import ProbedHost, judge
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import DOCKER, GIB, H100, HEALTHY, PRIVATE, PROCESS_HOST, container, gpus, hca

# A row: what differs from a healthy machine and from the expectation, the findings, and words of the only one.
Row = tuple[dict[str, Any], dict[str, Any], str, str]
FULL: dict[str, Any] = {"gpus": 8, "hcas": 2, "shared_root": "/private", "shared_root_fstypes": ["nfs4", "lustre"]}
FULL |= {"disk_free_gib": 100, "shared_root_free_gib": 200, "shm_gib": 64}


def findings(changes: Mapping[str, Any], expected: Mapping[str, Any]) -> list[Finding]:
    results = machine_findings("gpu-1", replace(HEALTHY, **changes), Expectation(**expected))
    assert all(finding.where == "gpu-1" and finding.remedy for finding in results)
    return results


def check(changes: Mapping[str, Any], expected: Mapping[str, Any], shown: str, words: str) -> None:
    results = findings(changes, expected)
    assert ", ".join(f"{finding.key} {finding.severity}" for finding in results) == shown
    for word in filter(None, words.split(" | ")):
        (finding,) = results
        assert word in f"{finding.problem}: {finding.remedy}"


NONE = replace(DOCKER, name="none", status=EngineStatus.NONE, nvidia=False)
AS_ML = {"uid": 1001, "user": "ml"}
BROKEN = "Driver/library version mismatch"
DISK = replace(PRIVATE, path="/var/lib/docker", fstype="ext4", source="/dev/vda", free_bytes=20 * GIB)
CLOSED = [DeviceFile("/dev/infiniband/uverbs0", 0o660, 0, 110)]
ROCM = [f"/dev/dri/renderD{number}" for number in range(128, 136)]


def mount(**changes: Any) -> dict[str, Any]:
    return {"mounts": [replace(PRIVATE, **changes)]}


EXPECTED: list[Row] = [
    (
        {"shm_bytes": 64 * GIB, "disk": replace(DISK, free_bytes=100 * GIB), "rdma_devices": CLOSED}
        | {"memory_bytes": 68 * GIB, **mount(free_bytes=200 * GIB)},
        {"object_store_gib": 64, "gpu_model": "nvidia h100"},
        "",
        "",
    ),
    ({"missing_packages": ["requests"], "engine": NONE, **AS_ML}, {"user": "61000:61000"}, "", ""),
    (
        {"gpus": gpus(4), "hcas": [hca("mlx5_0", "up"), hca("mlx5_1", "down")], **mount(fstype="ext4")},
        {"gpus": 4, "hcas": 1, "shared_root_fstypes": []},
        "",
        "",
    ),
    ({"engine": replace(DOCKER, nvidia=False)}, {"gpus": 0, "gpu_model": "A100"}, "", ""),
    ({"missing_packages": ["requests"]}, {}, "machine.packages error", "requests | python3-requests"),
    # Only root can run nodes as another user. Nodes without a container run as Ansible's.
    (AS_ML, {"user": "61000:61000"}, "machine.user error", "61000:61000 | 1001 | remove ray_node_user"),
    (AS_ML | {"engine": replace(DOCKER, rootless=True)}, {"user": "61000:61000"}, "machine.user error", "ml"),
    ({"uid": 0, "user": "root"}, {"user": "61000:61000"}, "", ""),
    (AS_ML, {"user": "1001:44"}, "", ""),
    *(
        ({"engine": replace(DOCKER, status=status, error="why", nvidia=False)}, {}, "machine.engine error", "why")
        for status in (EngineStatus.MISSING, EngineStatus.DENIED, EngineStatus.NO_ANSWER, EngineStatus.FAILED)
    ),
    # GPUs: number, driver, model, memory, and access for containers.
    ({"gpus": gpus(7)}, {}, "gpu.count error", "7 GPUs | 8 | dmesg"),
    ({"gpus": [], "rocm_gpus": ROCM}, {}, "", ""),
    ({"gpus": [], "rocm_gpus": ROCM[1:]}, {}, "gpu.count error", "7 GPUs"),
    ({"gpus": [], "gpus_error": BROKEN}, {}, "gpu.answers error", f"0 GPUs | 8 | {BROKEN}"),
    ({"gpus": [], "gpus_error": BROKEN}, {"gpus": 0}, "gpu.answers warning", ""),
    ({"gpus": [*gpus(6), *gpus(2, "NVIDIA A100")]}, {}, "gpu.model warning", f"2 x NVIDIA A100, 6 x {H100}"),
    ({}, {"gpu_model": "H10"}, "gpu.model error", "H10"),
    ({"engine": replace(DOCKER, nvidia=False)}, {}, "gpu.engine error", "nvidia-ctk runtime configure"),
    # HCAs, and whether the nodes' user can open their devices.
    ({"hcas": [hca("mlx5_0", "up"), hca("mlx5_1", "down")]}, {}, "hca.count error", "mlx5_1 port 1 (ib1) | cable"),
    ({"rdma_devices": CLOSED, "gid": 1001}, {"rdma": "auto"}, "hca.devices warning", "1000:1001 | uverbs0"),
    ({"rdma_devices": CLOSED, "uid": 0}, {"rdma": "auto"}, "hca.devices warning", "61000:61000"),
    ({"rdma_devices": CLOSED}, {"rdma": "auto", "groups": ["110"]}, "", ""),
    # The number of a named group is not known here.
    ({"rdma_devices": CLOSED}, {"rdma": "auto", "groups": ["44", "rdma"]}, "", ""),
    ({"rdma_devices": []}, {"rdma": "auto"}, "hca.devices warning", "TCP | modprobe ib_uverbs"),
    # The engine refuses a device that does not exist.
    ({"rdma_devices": [], "hcas": []}, {"rdma": "true", "hcas": 0}, "hca.devices error", "would not start"),
    ({"rdma_devices": [], "hcas": []}, {"rdma": "auto", "hcas": 0}, "", ""),
    # The shared root.
    (mount(exists=False, mount_point="/", fstype="ext4"), {}, "root.answers error", "/private | nfs4 or lustre"),
    (mount(mount_point="/", fstype="ext4"), {}, "root.type error", "preflight_shared_root_fstypes"),
    (mount(writable=False), {}, "root.writable error", "uid 1000 | root_squash"),
    (mount(writable=False, options=["ro"]), {}, "root.writable error", "option rw"),
    (mount(free_bytes=150 * GIB), {}, "root.space error", "150.0 GiB | 200"),
    (mount(exists=False, error="does not answer", free_bytes=0), {}, "root.answers error", "does not answer"),
    ({"mounts": [replace(PRIVATE, path="/other", exists=False, writable=False), PRIVATE]}, {}, "", ""),
    # Disk and memory.
    ({"disk": DISK}, {}, "machine.disk error", "/var/lib/docker | 20.0 GiB | docker image prune"),
    ({"shm_bytes": GIB // 16}, {}, "machine.shm error", "64 GiB | ray_node_shm_gib"),
    ({"memory_bytes": 24 * GIB}, {"object_store_gib": 64}, "machine.object_store error", "to at most 45;"),
    ({"memory_bytes": 67 * GIB}, {"object_store_gib": 64}, "machine.object_store error", ""),
    ({"containers": {"mvp-ray-head": container(None)}}, {}, "machine.node_name error", "mvp-ray-head | no cluster"),
    ({"containers": {"a": container("other"), "b": container()}}, {}, "machine.node_name error", "other"),
]


@pytest.mark.parametrize(("changes", "expected", "shown", "words"), EXPECTED)
def test_findings_of_an_expectation(changes: dict[str, Any], expected: dict[str, Any], shown: str, words: str) -> None:
    check(changes, FULL | expected, shown, words)


def test_values_of_an_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = {"gpus": [], "hcas": [], "mounts": [], "memory_bytes": 1, "shm_bytes": 0, "engine": NONE}
    assert findings(bare, {}) == []
    monkeypatch.setenv("HOME", "/home/ml")
    ports = [{"node": "h", "use": "GCS", "first": 1, "last": 2}]
    values = {"gpus": "8", "disk_free_gib": "80", "shared_root_fstypes": "nfs,nfs4", "hcas": "", "ports": ports}
    expected = Expectation.from_json({**values, "token_file": "~/state/auth_token"})
    converted = {"gpus": 8, "disk_free_gib": 80.0, "hcas": 0, "shared_root_fstypes": ["nfs", "nfs4"]}
    assert {name: getattr(expected, name) for name in converted} == converted
    assert (expected.token_file, expected.ports[0].last) == ("/home/ml/state/auth_token", 2)


GPU = Gpu(0, H100, "GPU-0", 81559, "550.90.07", "0000:01:00.0", "Disabled", 0, 0, memory_used_mib=4)
MI300X = Gpu(0, "AMD Instinct MI300X", "", 196592, "6.8.5", "0000:05:00.0", uncorrected=0, memory_used_mib=283)
OURS, THEIRS = "a" * 64, "b" * 64
OF_CLUSTER = {"containers": {"mvp-0": replace(container(), id=OURS)}}
GOOD = System("6.8.0-45-generic", "1048576", "unlimited", 100 * GIB, 50 * GIB)
PODMAN = Engine("podman", EngineStatus.OK, "4.9.4", rootless=True)
PYTHON = "/opt/verl/bin/python3"
SOFTWARE = Software(PYTHON, "3.12.3", {"ray": "2.60.0", "torch": "2.8.0", "nvidia-nccl-cu12": "2.27.3"})


def nvidia(**changes: Any) -> dict[str, Any]:
    return {"gpus": [replace(GPU, **changes)]}


def amd(**changes: Any) -> dict[str, Any]:
    device = DeviceFile(KFD, 0o666, 0, 0)
    return {"gpus": [], "amd_gpus": [replace(MI300X, **changes)], "rocm_gpus": ROCM[:1], "rocm_devices": [device]}


def used_by(pid: int, **changes: Any) -> dict[str, Any]:
    """A GPU that a program uses, on a machine with a container of the cluster."""
    process = replace(Process(pid, "python3", "", THEIRS, 70_000), **changes)
    return {**nvidia(processes=(process,), memory_used_mib=80_000), **OF_CLUSTER}


def host(**changes: Any) -> dict[str, Any]:
    return {"system": replace(GOOD, **changes)}


def podman(**changes: Any) -> dict[str, Any]:
    return {"engine": replace(PODMAN, **changes), **AS_ML, "gpus": []}


def process(state: str = "", **changes: Any) -> dict[str, Any]:
    return {"process": replace(PROCESS_HOST, node=NodeProcess(state), **changes)}


def software(ray: str | None = None, **changes: Any) -> dict[str, Any]:
    return {"software": replace(SOFTWARE, **({"packages": {"ray": ray}} if ray else {}), **changes)}


NO_GPUS = {"gpus": 0}
ALWAYS: list[Row] = [
    (
        {**nvidia(memory_used_mib=1023), **software("3.0.0.dev0")}
        | host(open_files="8192", tmp_free_bytes=GIB, tmp_total_bytes=4 * GIB),
        {"head_storage": "rocksdb"},
        "",
        "",
    ),
    (host(ray=(Process(7, "raylet"),), locked_memory="65536") | {"engine": NONE, "hcas": []}, {}, "", ""),
    (podman(tun=False) | {"missing_packages": ["requests"]}, {"address": "10.0.0.1"}, "", ""),
    (nvidia(uncorrected=2, uncorrected_ever=5), {}, "gpu.ecc error", "2 uncorrected | 5 ever"),
    (nvidia(uncorrected=2, remap_pending=True, recovery="Drain and Reset"), NO_GPUS, "", ""),
    (nvidia(remap_pending=True), {}, "gpu.remap error", "next reset"),
    (nvidia(recovery="Drain and Reset"), {}, "gpu.recovery error", "Drain and Reset"),
    (nvidia(mig="Enabled", memory_used_mib=40_000), {}, "gpu.mig warning", "MIG"),
    (nvidia(memory_used_mib=1024), {}, "gpu.memory warning", "1024 MiB"),
    # In a container of a platform, nvidia-smi shows no processes.
    ({**nvidia(memory_used_mib=80_000), **process("running")}, {}, "", ""),
    ({**nvidia(memory_used_mib=80_000), **process()}, {}, "gpu.memory warning", ""),
    (used_by(1, container=OURS), {}, "", ""),
    (used_by(2), {}, "gpu.processes error", ""),
    (used_by(3, container="", memory_mib=1023), {}, "gpu.processes warning", ""),
    (used_by(3, container="", memory_mib=1024), {}, "gpu.processes error", ""),
    (used_by(4, of_node=True), {}, "", ""),
    # An Xid of a job's own mistake is left out.
    ({"xids": [Xid("0000:3b:00", 31, 1, "x"), Xid("0000:83:00", 79, 2, "y")]}, {}, "gpu.xid error", "0000:83:00 | 79"),
    ({"xids": [Xid("0000:5e:00", 63, 1, "y")]}, {}, "gpu.xid warning", "63"),
    ({"kernel_log_error": "dmesg: not permitted"}, {}, "gpu.xid note", "not permitted"),
    (amd(), {"gpu_model": "MI300"}, "gpu.model error", ""),
    (amd(uncorrected=1), {"gpu_model": "MI300X"}, "gpu.ecc error", "1 uncorrected"),
    (amd() | {"rocm_devices": []}, {}, "amd.devices error", "/dev/kfd"),
    (amd(processes=(Process(7, "python3", "", THEIRS),)), {}, "gpu.processes warning", "283 MiB"),
    (amd(processes=(Process(7, "python3"),), memory_used_mib=1024), {}, "gpu.processes error", "pid 7"),
    # The host.
    (host(stuck=(Process(5, "nvidia-smi", "D"),)), {}, "host.stuck warning", "nvidia-smi (pid 5)"),
    (host(open_files="8191"), {}, "host.nofile warning", "8192"),
    (host(ray=(Process(7, "raylet"), Process(8, "raylet", "S", OURS))), {}, "host.ray warning", "raylet (pid 7)"),
    (host(tmp_free_bytes=GIB - 1, tmp_total_bytes=4 * GIB), {}, "host.tmp warning", "/tmp"),
    # Ray stops writing to a disk that is 95 % full.
    (host(tmp_free_bytes=5 * GIB - 1) | {"engine": NONE}, {}, "host.tmp warning", "/tmp"),
    (host(tmp_free_bytes=5 * GIB - 1), {}, "", ""),
    (host(locked_memory="65536") | {"engine": NONE}, {}, "host.memlock warning", ""),
    (host(token="/root/.ray/auth_token"), {}, "host.stray_token note", ""),
    (host(token="/root/.ray/auth_token") | {"engine": NONE}, {}, "host.stray_token warning", ""),
    # The Python of nodes.
    (software("2.51.9"), {}, "software.python error", "2.51.9"),
    (software("2.56.1"), {"head_storage": "rocksdb"}, "software.python error", "cluster_head_storage: memory"),
    (software("2.56.1"), {"head_storage": "memory"}, "", ""),
    (software(packages={}), {}, "software.python error", PYTHON),
    (software(problem="No such file"), {}, "software.python error", "No such file"),
    # Podman.
    (podman(lingers=False, boots=False), {}, "podman.lingers error", "loginctl enable-linger ml"),
    (podman(boots=False), {}, "podman.boot warning", "systemctl --user enable podman-restart.service"),
    (podman(limits_pids=False), {}, "podman.limits warning", ""),
    (podman(tun=False), {}, "podman.tun error", "chmod 0666 /dev/net/tun"),
    ({"engine": replace(DOCKER, lingers=False, boots=False, limits_pids=False, tun=False)}, {}, "", ""),
    # A node without a container.
    (process() | {"uid": 0}, {}, "process.root error", ""),
    (process(ray=""), {}, "process.ray error", "ray_node_python"),
    (process(address=""), {}, "process.address error", ""),
    (process(others=["raylet 7", "gcs_server 10"]), {}, "process.other_ray warning", "raylet 7 | gcs_server 10"),
]


@pytest.mark.parametrize(("changes", "expected", "shown", "words"), ALWAYS)
def test_findings(changes: dict[str, Any], expected: dict[str, Any], shown: str, words: str) -> None:
    check(changes, expected, shown, words)


DASHBOARD = PortRange("ray-head", DASHBOARD_USE, 8265, 8265)
PORTS = [DASHBOARD, PortRange("ray-head", "GCS", 20000, 20000), PortRange("worker-0", "worker processes", 21020, 21999)]


def head(cluster: str = "mvp", **changes: Any) -> dict[str, Any]:
    return {"ports_in_use": [8265], "containers": {"ray-head": container(cluster, **changes)}}


OUTGOING: dict[str, Any] = {"ephemeral_ports": (21000, 60999), "reserved_ports": [(21000, 21499)]}
OF_PORTS: list[Row] = [
    (
        {"ports_in_use": [22, 8264, 8266, 19999, 20001, 21019, 22000], "ephemeral_ports": (22000, 60999)},
        {},
        "",
        "",
    ),
    # In a container network, nothing but the dashboard is opened on the machine.
    ({"ports_in_use": [20000], "ephemeral_ports": (1024, 65535)}, {"ports": [DASHBOARD]}, "", ""),
    ({"ports_in_use": [22, 20000]}, {}, "machine.port error", "20000 | GCS of ray-head | cluster_port_base"),
    ({"ports_in_use": [8265]}, {}, "machine.port error", "8265 | cluster_dashboard_port"),
    # Ray passes over ports of worker processes.
    ({"ports_in_use": [21020, 21500, 21999]}, {}, "machine.port warning", "21020, 21500, 21999 | worker-0"),
    # Of the node itself, of another node, of another cluster, not up, with another port.
    *((head(state=state, host_ports=[8265]), {}, "", "") for state in ("running", "restarting", "paused")),
    (head(host_network=True), {}, "", ""),
    ({"ports_in_use": [8265], "containers": {"worker-0": container(host_network=True)}}, {}, "machine.port error", ""),
    (head("other", host_network=True), {}, "machine.node_name error, machine.port error", ""),
    (head(state="exited", host_network=True), {}, "machine.port error", ""),
    (head(host_ports=[8266]), {}, "machine.port error", ""),
    *(({"ports_in_use": [20000], **process(state)}, {}, "", "") for state in ("running", "orphaned")),
    *(({"ports_in_use": [20000], **process(state)}, {}, "machine.port error", "") for state in ("stopped", "")),
    (OUTGOING, {}, "machine.port warning", "21500-21999 | net.ipv4.ip_local_reserved_ports=20000-21999"),
    ({"ephemeral_ports": (1024, 20000)}, {}, "machine.port warning", "20000-20000"),
    ({"ephemeral_ports": (1024, 65535), "reserved_ports": [(1, 21000), (21001, 65535)]}, {}, "", ""),
]


@pytest.mark.parametrize(("changes", "expected", "shown", "words"), OF_PORTS)
def test_ports(changes: dict[str, Any], expected: dict[str, Any], shown: str, words: str) -> None:
    check(changes, {"ports": PORTS, **expected}, shown, words)


@pytest.mark.parametrize(
    ("owner", "mode", "archives", "is_good"),
    [
        ("61000:61000", 0o755, None, True),
        ("0:61000", 0o770, None, True),
        ("0:0", 0o1777, None, True),
        ("0:0", 0o755, "61000:61000", True),
        ("0:0", 0o755, None, False),
        ("1000:1000", 0o755, None, False),
        ("61000:61000", 0o555, None, False),
        ("0:5000", 0o2770, None, False),
    ],
)
def test_root_without_rights_on_nfs(owner: str, mode: int, archives: str | None, is_good: bool) -> None:
    changes = mount(writable=False, owner=owner, mode=mode, archives_owner=archives) | {"uid": 0, "user": "root"}
    assert [finding.key for finding in findings(changes, FULL)] == ([] if is_good else ["root.writable"])
    # Nodes of root have its rights; those of further groups have theirs.
    assert "root.writable" in {finding.key for finding in findings(changes, FULL | {"user": "0:0"})}
    for group in ("5000", "render"):
        results = findings(changes, FULL | {"groups": [group]})
        assert [finding.key for finding in results] == ([] if is_good or owner == "0:5000" else ["root.writable"])


TOKEN = {"token_file": "/state/mvp/auth_token"}


def state(**changes: Any) -> dict[str, Any]:
    directory = replace(PRIVATE, **{"path": "/state/mvp", "fstype": "ext4", "mode": 0o711, **changes})
    return {"mounts": [replace(PRIVATE, path="/other", writable=False), directory]}


def modes(directory: int, token: int) -> dict[str, Any]:
    changes = state(mode=directory)
    return {"mounts": [*changes["mounts"], replace(PRIVATE, path="/state/mvp/auth_token", mode=token)]}


ROOT: dict[str, Any] = {"uid": 0, "user": "root"}
OWNERS: list[Row] = [
    (mount(archives_owner="1000:1000") | ROOT, {}, "root.owner error", "chown -hR 61000:61000 /private/jobs"),
    (mount(archives_owner="61000:100") | ROOT, {}, "", ""),
    (mount(archives_owner="1000:1000") | ROOT, {"user": "1000:1000"}, "", ""),
    (mount(archives_owner=None) | ROOT, {}, "", ""),
    # Where Ansible is not root, everything belongs to its own user, and so it is for nodes without a container.
    (mount(archives_owner="1000:1000"), {}, "", ""),
    (mount(archives_owner="0:0") | process() | {"uid": 0, "gid": 0}, {"user": "7:7"}, "process.root error", ""),
    (mount(mode=0o777) | ROOT, {}, "root.mode warning", "777"),
    *((mount(mode=mode) | ROOT, {}, "", "") for mode in (0o1777, 0o775, 0o755)),
    # The token.
    (modes(0o755, 0o400), TOKEN, "machine.token warning", "755 | rotate_token=true"),
    (modes(0o711, 0o444), TOKEN, "machine.token warning", "444 | rotate_token=true"),
    (modes(0o700, 0o400), TOKEN, "", ""),
    (state(exists=False, mode=None), TOKEN, "", ""),
    (state(free_bytes=64 * 2**20), TOKEN, "", ""),
    (state(error="stale"), TOKEN, "machine.state_dir error", "/state/mvp | stale | cluster_state_dir"),
    (state(writable=False), TOKEN, "machine.state_dir error", "ray"),
    (state(exists=False, writable=False, mode=None), TOKEN, "machine.state_dir error", "cannot be created"),
    (state(fstype="nfs4"), TOKEN, "machine.state_dir error", "local disk"),
    (state(free_bytes=64 * 2**20 - 1), TOKEN, "machine.state_dir error", "64 MiB"),
    (state(free_bytes=64 * 2**20), {**TOKEN, "head_storage": "rocksdb"}, "machine.state_dir error", "512 MiB"),
]


@pytest.mark.parametrize(("changes", "expected", "shown", "words"), OWNERS)
def test_owners_and_modes(changes: dict[str, Any], expected: dict[str, Any], shown: str, words: str) -> None:
    check(changes, ({} if "token_file" in expected else {"shared_root": "/private"}) | expected, shown, words)


def on(**changes: Any) -> Machine:
    return replace(HEALTHY, **changes)


IMAGE = "image:1"


def image(digit: str) -> dict[str, Any]:
    return {"images": {IMAGE: Image("sha256:" + digit * 64, {}) if digit else None}}


@pytest.mark.parametrize(
    ("usual", "other", "shown"),
    [
        (nvidia(), amd(), "gpu.driver, gpu.same"),
        (nvidia(), nvidia(driver_version="1"), "gpu.driver"),
        (nvidia(), {"gpus": [GPU, GPU]}, "gpu.same"),
        (host(), host(kernel="5.15"), "host.kernel"),
        (image("1"), image("7"), "host.image"),
        (image("1"), image(""), ""),
        # A head needs no torch.
        (software(), software("2.60.0"), ""),
        (software(), software(python="3.11.2"), "software.ray"),
        *(
            (software(), software(packages={**SOFTWARE.packages, name: "0.1"}), f"software.{key}")
            for name, key in (("ray", "ray"), ("torch", "packages"), ("nvidia-nccl-cu12", "packages"))
        ),
        ({}, mount(fstype="lustre"), "storage.type"),
        ({}, mount(source="other:/private"), "storage.source"),
        ({}, mount(options=[*PRIVATE.options, "nolock"]), "storage.options"),
        ({}, mount(fstype="ext4"), "storage.type, storage.local"),
        ({}, mount(options=["clientaddr=10.0.0.9", *reversed(PRIVATE.options)]), ""),
        # One that cannot be read is not compared.
        ({}, mount(fstype="ext4", error="stale"), ""),
    ],
)
def test_the_machine_that_differs_is_named(usual: dict[str, Any], other: dict[str, Any], shown: str) -> None:
    machines = {"a": on(**usual), "b": on(**usual), "c": on(**other), "d": on(gpus=[], mounts=[])}
    expected = Expectation(shared_root="/private")
    probed = {name: ProbedHost(Context(name, machine, expected), []) for name, machine in machines.items()}
    results = judge(list(probed), probed, "fast").findings
    assert {finding.where for finding in results} <= {"c"}
    assert ", ".join(finding.key for finding in results) == shown
