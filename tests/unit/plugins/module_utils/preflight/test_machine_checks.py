from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import DeviceFile
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import EngineStatus
from ansible_collections.argus.verl.plugins.module_utils.cluster.ports import PortRange
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import DOCKER, GIB, H100, HEALTHY, PRIVATE, PROCESS_HOST, container, gpus, hca

FULL = Expectation(
    gpus=8,
    hcas=2,
    shared_root="/private",
    shared_root_fstypes=["nfs4", "lustre"],
    memory_gib_per_gpu=80,
    disk_free_gib=100,
    shared_root_free_gib=200,
    shm_gib=64,
)


def only(expectation: Expectation = FULL, **changes: Any) -> Finding:
    """Return the one finding about the healthy machine with these changes."""
    findings = machine_findings("gpu-01", replace(HEALTHY, **changes), expectation)
    assert len(findings) == 1, findings
    assert findings[0].where == "gpu-01"
    assert findings[0].todo
    return findings[0]


def none(expectation: Expectation = FULL, **changes: Any) -> bool:
    return machine_findings("gpu-01", replace(HEALTHY, **changes), expectation) == []


def test_python_without_the_package_for_the_engine() -> None:
    finding = only(missing_packages=["requests"])
    assert finding.what == "/usr/bin/python3 has no package requests, which is needed to start containers"
    assert finding.severity == ERROR
    assert "python3-requests" in finding.todo
    # Without an engine the package is not needed.
    assert none(missing_packages=["requests"], engine=replace(DOCKER, status=EngineStatus.NONE))


def test_only_root_can_run_nodes_as_another_user() -> None:
    other = replace(FULL, user="61000:61000")
    for engine in (DOCKER, replace(DOCKER, name="podman", rootless=True)):
        finding = only(other, uid=1001, user="ml", engine=engine)
        assert (finding.key, finding.severity) == ("machine.user", ERROR)
        assert finding.what.startswith('ray_node_user is 61000:61000, but Ansible runs as user "ml" (uid 1001): ')
        assert finding.todo.startswith('remove ray_node_user, so that nodes run as "ml", or')
    assert none(other, uid=0, user="root")
    assert none(replace(FULL, user="1001:44"), uid=1001)
    # Nodes without a container run as Ansible's user, whatever is set.
    assert none(other, uid=1001, engine=replace(DOCKER, status=EngineStatus.NONE))


def test_healthy_machine_and_machine_without_expectations() -> None:
    assert none()
    assert none(Expectation(), gpus=[], hcas=[], mounts=[], memory_bytes=1, shm_bytes=0)


@pytest.mark.parametrize(
    ("status", "todo"),
    [
        (EngineStatus.MISSING, 'install "docker" on this machine'),
        (EngineStatus.DENIED, 'add the user "ray" to the group "docker", or set ansible_become: true'),
        (EngineStatus.NO_ANSWER, "start its daemon (systemctl enable --now docker) and check its log"),
        (EngineStatus.FAILED, "run the command on the machine and fix the error that it prints"),
    ],
)
def test_engine_not_usable(status: EngineStatus, todo: str) -> None:
    finding = only(engine=replace(DOCKER, status=status, error="the error", nvidia=False), disk=None)
    assert finding == Finding(
        "gpu-01", "container engine not usable, expected one that answers: the error", todo, ERROR, "machine.engine"
    )


def test_machine_without_an_engine_needs_none() -> None:
    assert none(engine=replace(DOCKER, name="none", status=EngineStatus.NONE, nvidia=False))


def test_the_token_of_processes_is_in_the_home_of_their_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ml")
    token = Expectation.from_json({"token_file": "~/.local/state/argus-verl/mvp/auth_token"}).token_file
    assert token == "/home/ml/.local/state/argus-verl/mvp/auth_token"


def test_fewer_gpus_than_expected() -> None:
    finding = only(gpus=gpus(7))
    assert (finding.what, finding.severity) == ("7 GPUs found, expected at least 8", ERROR)
    assert "dmesg" in finding.todo
    finding = only(gpus=[])
    assert finding.what == "0 GPUs found, expected at least 8"
    assert "install the driver" in finding.todo
    assert none(Expectation(gpus=4))


ROCM_GPU = "/dev/dri/renderD128"


def test_amd_gpus_count() -> None:
    assert none(gpus=[], rocm_gpus=[ROCM_GPU] * 8)
    assert only(gpus=[], rocm_gpus=[ROCM_GPU] * 7).what == "7 GPUs found, expected at least 8"


def test_broken_driver_is_one_finding_with_the_numbers() -> None:
    finding = only(gpus=[], gpus_error="Driver/library version mismatch")
    assert finding.what == "nvidia-smi fails and shows 0 GPUs, expected 8: Driver/library version mismatch"
    assert finding.severity == ERROR
    # A warning where no GPU is needed, an error where any number is accepted.
    assert only(Expectation(gpus=0), gpus=[], gpus_error="x").severity == WARNING
    finding = only(Expectation(), gpus=[], gpus_error="x")
    assert (finding.what, finding.severity) == ("nvidia-smi fails and shows 0 GPUs: x", ERROR)


def test_lost_gpu_is_found_though_the_others_answer() -> None:
    finding = only(gpus=gpus(7), gpus_error="Unable to determine the device handle for GPU7")
    assert finding.what.startswith("nvidia-smi fails and shows 7 GPUs, expected 8: Unable to determine")


def test_gpus_of_different_models_are_a_warning() -> None:
    finding = only(gpus=[*gpus(6), *gpus(2, "NVIDIA A100")])
    assert finding.severity == WARNING
    assert f"2 x NVIDIA A100, 6 x {H100}" in finding.what


@pytest.mark.parametrize(
    ("expected", "key", "expectation"),
    [
        ({"gpu_model": "A100"}, "gpu.model", "expected A100"),
        # A whole word.
        ({"gpu_model": "H10"}, "gpu.model", "expected H10"),
        ({"gpu_memory_gib": 141}, "gpu.memory_size", "expected 141 GiB"),
    ],
)
def test_gpus_that_are_not_the_expected_ones(expected: dict[str, Any], key: str, expectation: str) -> None:
    found = gpus(8)
    finding = only(replace(FULL, **expected), gpus=found)
    assert (finding.key, finding.severity) == (key, ERROR)
    assert f"8 x {H100}" in finding.what
    assert expectation in finding.what
    # A head that uses no GPU may have any.
    assert none(replace(FULL, gpus=0, **expected), gpus=found)


def test_gpus_that_are_the_expected_ones() -> None:
    # The driver reports 79.6 GiB.
    assert none(replace(FULL, gpu_model="nvidia h100", gpu_memory_gib=80))
    # Memory that is shared with the CPU has no size.
    unified = replace(FULL, gpus=1, gpu_memory_gib=80)
    assert only(unified, gpus=[replace(gpus(1)[0], memory_mib=0)]).key == "gpu.memory_size"


def test_one_gpu_of_eight_is_not_the_expected_one() -> None:
    keys = {
        finding.key: finding.what
        for finding in machine_findings(
            "gpu-01", replace(HEALTHY, gpus=[*gpus(7), *gpus(1, "NVIDIA A100")]), replace(FULL, gpu_model="H100")
        )
    }
    assert keys["gpu.model"].startswith("1 x NVIDIA A100, expected H100")


def test_engine_that_cannot_give_gpus_to_containers() -> None:
    engine = replace(DOCKER, nvidia=False)
    finding = only(engine=engine)
    assert finding.severity == ERROR
    assert finding.what.startswith("8 GPUs found, but docker 27.3.1 cannot give them to containers")
    assert "nvidia-ctk runtime configure" in finding.todo
    assert "nvidia-ctk cdi generate" in only(engine=replace(engine, name="podman")).todo
    # A head that uses no GPU needs no access.
    assert none(Expectation(gpus=0), engine=engine)


def test_hcas_that_are_down_are_listed() -> None:
    finding = only(hcas=[hca("mlx5_0", "up"), hca("mlx5_1", "down")])
    assert finding.what == "1 HCA ports up, expected at least 2; down: mlx5_1 port 1 (ib1)"
    assert finding.severity == ERROR
    assert "cable" in finding.todo
    finding = only(hcas=[hca("mlx5_0", "up")])
    assert finding.what.endswith("; down: none")
    assert "ibstat" in finding.todo
    without = replace(hca("mlx5_1", "down"), netdev=None)
    assert only(hcas=[hca("mlx5_0", "up"), without]).what.endswith("mlx5_1 port 1 (no netdev)")
    assert only(hcas=[]).what == "no HCA found, expected at least 2 ports up"
    assert none(Expectation(hcas=1), hcas=[hca("mlx5_0", "up"), hca("mlx5_1", "down")])


def test_missing_shared_root() -> None:
    finding = only(mounts=[replace(PRIVATE, exists=False, mount_point="/", fstype="ext4", source="/dev/vda")])
    assert finding.severity == ERROR
    assert finding.what == (
        "shared root /private does not exist (its nearest parent is on ext4 from /dev/vda, mounted at /), "
        "expected a directory of type nfs4 or lustre"
    )
    assert "create the directory" in finding.todo


def test_shared_root_on_the_wrong_file_system() -> None:
    finding = only(mounts=[replace(PRIVATE, mount_point="/", fstype="ext4", source="/dev/vda")])
    assert finding.what == "shared root /private is ext4 from /dev/vda, mounted at /, expected of type nfs4 or lustre"
    assert finding.severity == ERROR
    assert 'add "ext4" to preflight_shared_root_fstypes' in finding.todo
    assert none(Expectation(shared_root="/private"), mounts=[replace(PRIVATE, fstype="ext4")])


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
    state = replace(PRIVATE, writable=False, owner=owner, mode=mode, archives_owner=archives)
    found = machine_findings("gpu-01", replace(HEALTHY, uid=0, gid=0, user="root", mounts=[state]), FULL)
    assert [finding.key for finding in found] == ([] if is_good else ["root.writable"])
    # Nodes of root have its rights; those of further groups have theirs.
    machine = replace(HEALTHY, uid=0, gid=0, user="root", mounts=[state])
    as_root = {finding.key for finding in machine_findings("gpu-01", machine, replace(FULL, user="0:0"))}
    assert "root.writable" in as_root
    for group in ("5000", "render"):
        found = machine_findings("gpu-01", machine, replace(FULL, groups=[group]))
        assert [finding.key for finding in found] == ([] if is_good or owner == "0:5000" else ["root.writable"])


def test_only_the_shared_root_is_checked() -> None:
    other = replace(PRIVATE, path="/other", exists=False, writable=False, free_bytes=0)
    assert none(mounts=[other, PRIVATE])
    assert none(Expectation(), mounts=[other])


def test_shared_root_that_is_not_writable() -> None:
    finding = only(mounts=[replace(PRIVATE, writable=False)])
    assert 'is not writable, expected writable for user "ray" (uid 1000)' in finding.what
    assert "root_squash" in finding.todo
    finding = only(mounts=[replace(PRIVATE, writable=False, options=["ro"])])
    assert "is mounted read-only" in finding.what
    assert finding.todo == "mount it with the option rw"


def test_shared_root_without_free_space() -> None:
    finding = only(mounts=[replace(PRIVATE, free_bytes=150 * GIB)])
    assert finding.what.endswith("has 150.0 GiB free, expected at least 200 GiB")
    assert none(mounts=[replace(PRIVATE, free_bytes=200 * GIB)])


def test_all_problems_of_the_shared_root_are_reported() -> None:
    state = replace(PRIVATE, fstype="ext4", writable=False, free_bytes=0)
    findings = machine_findings("gpu-01", replace(HEALTHY, mounts=[state]), FULL)
    assert len(findings) == 3


def test_shared_root_that_does_not_answer_is_one_finding() -> None:
    silent = replace(PRIVATE, exists=False, error="storage:/export does not answer within 5 s", free_bytes=0)
    finding = only(mounts=[silent])
    assert "cannot be read: storage:/export does not answer within 5 s" in finding.what
    assert "umount -l" in finding.todo


def test_engine_disk_without_free_space() -> None:
    disk = replace(PRIVATE, path="/var/lib/docker", fstype="ext4", source="/dev/vda", free_bytes=20 * GIB)
    finding = only(disk=disk)
    assert finding.what == "/var/lib/docker (ext4 from /dev/vda) has 20.0 GiB free, expected at least 100 GiB"
    assert "docker image prune" in finding.todo
    assert "20.0 GiB free (it hangs)," in only(disk=replace(disk, error="it hangs")).what
    assert none(disk=replace(disk, free_bytes=100 * GIB))
    engine = replace(DOCKER, name="none", status=EngineStatus.NONE)
    assert "/tmp/ray" in only(disk=disk, engine=engine).todo


def test_shared_memory_too_small() -> None:
    finding = only(shm_bytes=GIB // 16)
    assert finding.what == "shared memory (/dev/shm) has 0.1 GiB, expected at least 64 GiB"
    assert finding.severity == ERROR
    assert "smaller ray_node_shm_gib" in finding.todo
    assert none(shm_bytes=64 * GIB)


def test_object_store_that_does_not_fit_into_memory() -> None:
    large = Expectation(object_store_gib=64)
    finding = only(large, memory_bytes=24 * GIB)
    assert (finding.key, finding.severity) == ("machine.object_store", ERROR)
    assert finding.what == (
        "24.0 GiB of memory, and Ray's object store takes 64 GiB of it (half of ray_node_shm_gib): Ray does not start"
    )
    assert "to at most 45;" in finding.todo
    # Ray wants 5 % beside it.
    assert none(large, memory_bytes=68 * GIB)
    assert only(large, memory_bytes=67 * GIB).key == "machine.object_store"


def test_memory_per_gpu_is_a_warning_with_its_source() -> None:
    finding = only(memory_bytes=512 * GIB)
    assert finding.severity == WARNING
    assert finding.what == "512.0 GiB of memory for 8 GPUs, expected at least 80 GiB per GPU (640 GiB in total)"
    assert "verl issue 429" in finding.todo
    # Without an expected number, the GPUs of the machine count.
    any_number = Expectation(memory_gib_per_gpu=80)
    assert only(any_number, memory_bytes=512 * GIB).what.startswith("512.0 GiB of memory for 8 GPUs")
    assert none(any_number, memory_bytes=512 * GIB, gpus=gpus(4))
    assert none(memory_bytes=640 * GIB)
    # Of a larger machine, only the expected GPUs count.
    assert none(Expectation(gpus=4, memory_gib_per_gpu=80), memory_bytes=320 * GIB)


@pytest.mark.parametrize(
    ("cluster", "owner"),
    [(None, "no cluster (no label argus.verl.cluster)"), ("other", 'cluster "other"')],
)
def test_name_taken_by_another_owner(cluster: str | None, owner: str) -> None:
    finding = only(containers={"mvp-ray-head": container(cluster), "mvp-ray-worker-0": container()})
    assert finding.severity == ERROR
    assert finding.what == (
        f'the name "mvp-ray-head" is taken by a container of {owner} (running, id 0123456789ab), '
        'expected free or of cluster "mvp"'
    )


def test_ports_and_devices_are_checked() -> None:
    """test_ports.py and test_hca_devices.py have the cases."""
    gcs = PortRange("ray-head", "GCS", 20000, 20000)
    finding = only(Expectation(ports=[gcs]), ports_in_use=[20000])
    assert finding.what.startswith("port 20000 is in use")
    assert none(ports_in_use=[20000])
    closed = [DeviceFile("/dev/infiniband/uverbs0", 0o660, 0, 110)]
    assert none(Expectation(), rdma_devices=closed)
    auto = Expectation(rdma="auto")
    # The default user is that of Ansible, or another one instead of root.
    assert "user 1000:1001 cannot open" in only(auto, rdma_devices=closed, gid=1001).what
    assert "user 61000:61000 cannot open" in only(auto, rdma_devices=closed, uid=0).what
    assert "user 7:8 cannot open" in only(replace(auto, user="7:8"), rdma_devices=closed, uid=0).what
    assert none(replace(auto, groups=["110"]), rdma_devices=closed)


# --- Owners and modes -------------------------------------------------------------------------------------------------


def on_shared_root(uid: int, user: str = "", **changes: Any) -> list[Finding]:
    machine = replace(HEALTHY, uid=uid, mounts=[replace(PRIVATE, **changes)])
    return machine_findings("box", machine, Expectation(shared_root="/private", user=user))


@pytest.mark.parametrize(("owner", "user"), [("1000:1000", ""), ("61000:61000", "61001:61001"), ("0:0", "")])
def test_archives_of_another_user(owner: str, user: str) -> None:
    (finding,) = on_shared_root(0, user, archives_owner=owner)
    nodes = user or "61000:61000"
    assert finding.what == f"the job archives in /private/jobs belong to {owner}, expected the nodes' user {nodes}"
    advice = "" if owner == "0:0" else f'set ray_node_user: "{owner}" for the nodes, or '
    assert finding.todo == f"{advice}change their owner: chown -hR {nodes} /private/jobs"
    assert finding.severity == "error"


def test_archives_of_the_nodes_user() -> None:
    assert on_shared_root(0, archives_owner="61000:100") == []
    assert on_shared_root(0, "1000:1000", archives_owner="1000:1000") == []
    assert on_shared_root(0, archives_owner=None) == []
    # Where Ansible is not root, everything belongs to its own user.
    assert on_shared_root(1000, archives_owner="1000:1000") == []


def test_archives_of_a_node_without_a_container() -> None:
    """It runs as Ansible's user, root included, whatever containers would have."""
    as_root = replace(HEALTHY, uid=0, gid=0, process=PROCESS_HOST, mounts=[replace(PRIVATE, archives_owner="0:0")])
    keys = [one.key for one in machine_findings("pod", as_root, Expectation(shared_root="/private", user="7:7"))]
    assert keys == ["process.root"]
    others = replace(as_root, mounts=[replace(PRIVATE, archives_owner="1002:1002")])
    found = machine_findings("pod", others, Expectation(shared_root="/private"))
    (owner,) = [one for one in found if one.key == "root.owner"]
    assert "belong to 1002:1002, expected the nodes' user 0:0" in owner.what
    assert owner.todo == "change their owner: chown -hR 0:0 /private/jobs"


def test_shared_root_that_everybody_can_change() -> None:
    (finding,) = on_shared_root(0, mode=0o777)
    assert finding.what == (
        "every user of the machine can replace the directories of the shared root /private (mode 777), expected a "
        "directory that only its owner or group can write to"
    )
    assert finding.severity == "warning"
    for mode in (0o1777, 0o775, 0o755):
        assert on_shared_root(0, mode=mode) == []


@pytest.mark.parametrize(
    ("directory", "token", "named"), [(0o755, 0o400, [0o755]), (0o711, 0o444, [0o444]), (0o700, 0o400, [])]
)
def test_token_that_others_can_read(directory: int, token: int, named: list[int]) -> None:
    path = "/var/lib/argus-verl/mvp"
    mounts = [
        replace(PRIVATE, path=path, fstype="ext4", mode=directory),
        replace(PRIVATE, path=f"{path}/auth_token", mode=token),
    ]
    found = machine_findings("box", replace(HEALTHY, mounts=mounts), Expectation(token_file=f"{path}/auth_token"))
    assert [finding.what.split(",")[0].split()[-1] for finding in found] == [f"{mode:o}" for mode in named]
    assert {finding.severity for finding in found} <= {"warning"}
    assert all("rotate_token=true" in finding.todo for finding in found)


STATE_DIR = "/var/lib/argus-verl/mvp"


def in_state_dir(head_storage: str = "", **changes: Any) -> list[Finding]:
    there = replace(PRIVATE, **{"path": STATE_DIR, "fstype": "ext4", "mode": 0o711, **changes})
    mounts = [replace(PRIVATE, path="/other", writable=False), there]
    expected = Expectation(token_file=f"{STATE_DIR}/auth_token", head_storage=head_storage)
    return machine_findings("box", replace(HEALTHY, mounts=mounts), expected)


def test_directory_of_the_token() -> None:
    assert in_state_dir() == []
    # It may be created.
    assert in_state_dir(exists=False, mode=None) == []
    assert in_state_dir(free_bytes=64 * 2**20) == []
    assert machine_findings("box", replace(HEALTHY, mounts=[replace(PRIVATE, path=".")]), Expectation()) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"error": "stale"}, "cannot be read: stale (ext4 from storage:/export, mounted at /private)"),
        ({"writable": False}, 'cannot be written to by user "ray" (ext4'),
        (
            {"exists": False, "writable": False, "mode": None},
            'does not exist and cannot be created by user "ray" (ext4',
        ),
        ({"fstype": "nfs4"}, "is nfs4 from storage:/export, mounted at /private, expected a local disk"),
        ({"fstype": "lustre"}, "is lustre from"),
        ({"free_bytes": 64 * 2**20 - 1}, "has 64 MiB free, expected at least 64 MiB"),
        ({"free_bytes": 64 * 2**20, "head_storage": "rocksdb"}, "has 64 MiB free, expected at least 512 MiB"),
    ],
)
def test_directory_in_which_no_token_can_be(changes: dict[str, Any], problem: str) -> None:
    (finding,) = in_state_dir(**changes)
    assert f"the directory of the token, {STATE_DIR}, {problem}" in finding.what
    assert "set cluster_state_dir to a directory on a local disk" in finding.todo
    assert finding.severity == ERROR


def test_all_problems_of_the_directory_of_the_token_are_named() -> None:
    assert len(in_state_dir(fstype="nfs", writable=False)) == 2
