from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.preflight import GIB, Expectation, machine_findings
from ansible_collections.argus.verl.plugins.module_utils.findings import ERROR, WARNING, Finding

H100 = "NVIDIA H100 80GB HBM3"


def mount(path: str, **changes: Any) -> dict[str, Any]:
    state = {
        "path": path,
        "exists": True,
        "mount_point": "/private",
        "fstype": "nfs4",
        "source": "storage:/export",
        "options": ["rw", "vers=4.2"],
        "free_bytes": 500 * GIB,
        "total_bytes": 1000 * GIB,
        "writable": True,
        "error": None,
    }
    return {**state, **changes}


def hca(device: str, state: str) -> dict[str, Any]:
    return {"device": device, "port": 1, "netdev": device.replace("mlx5_", "ib"), "state": state}


def container(cluster: str | None = "mvp", **changes: Any) -> dict[str, Any]:
    labels = {} if cluster is None else {"argus.verl.cluster": cluster}
    state = {
        "id": "0123456789abcdef",
        "state": "running",
        "started_at": "2026-01-12T08:15:30Z",
        "image_id": "sha256:1",
        "labels": labels,
        "host_ports": [],
        "host_network": False,
    }
    return {**state, **changes}


HEALTHY: dict[str, Any] = {
    "cluster": "mvp",
    "gpus": [
        {"index": i, "name": H100, "uuid": f"GPU-{i}", "memory_mib": 81559, "driver_version": "1"} for i in range(8)
    ],
    "gpus_error": None,
    "hcas": [hca("mlx5_0", "up"), hca("mlx5_1", "up")],
    "hca_source": "ibdev2netdev",
    "python": "/usr/bin/python3",
    "missing_packages": [],
    "mounts": [mount("/private")],
    "disk": mount("/var/lib/docker", mount_point="/", fstype="ext4", source="/dev/vda"),
    "memory_bytes": 1000 * GIB,
    "memory_available_bytes": 900 * GIB,
    "shm_bytes": 500 * GIB,
    "cpus": 192,
    "uid": 1000,
    "gid": 1000,
    "user": "ray",
    "engine": {
        "name": "docker",
        "status": "ok",
        "version": "27.3.1",
        "error": None,
        "root_dir": "/var/lib/docker",
        "nvidia": True,
    },
    "containers": {},
    "images": {},
    "ports_in_use": [],
}

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
    """The one finding about the healthy machine with these changes."""
    findings = machine_findings("gpu-01", {**deepcopy(HEALTHY), **changes}, expectation)
    assert len(findings) == 1, findings
    assert findings[0].where == "gpu-01"
    assert findings[0].todo
    return findings[0]


def none(expectation: Expectation = FULL, **changes: Any) -> bool:
    return machine_findings("gpu-01", {**deepcopy(HEALTHY), **changes}, expectation) == []


def test_a_python_that_cannot_speak_to_the_engine() -> None:
    finding = only(missing_packages=["requests"])
    assert finding.what == "/usr/bin/python3 has no package requests, with which containers are started"
    assert "python3-requests" in finding.todo
    # Without an engine there is nothing to speak to.
    engine = {**HEALTHY["engine"], "status": "none"}
    assert none(missing_packages=["requests"], engine=engine)


def test_a_healthy_machine_and_one_of_which_nothing_is_expected() -> None:
    assert none()
    assert none(Expectation(), gpus=[], hcas=[], mounts=[], memory_bytes=1, shm_bytes=0)


@pytest.mark.parametrize(
    ("status", "way_out"),
    [
        ("missing", "install it"),
        ("denied", 'let the user "ray" use it'),
        ("no_answer", "start its daemon"),
        ("failed", "run the command"),
    ],
)
def test_engine_not_usable(status: str, way_out: str) -> None:
    engine = {**HEALTHY["engine"], "status": status, "error": "it said so", "nvidia": False}
    finding = only(engine=engine, disk=None)
    assert finding.severity == ERROR
    assert finding.what == "container engine not usable, expected one that answers: it said so"
    assert way_out in finding.todo


def test_no_engine_is_no_finding_where_none_is_used() -> None:
    assert none(engine={**HEALTHY["engine"], "name": "none", "status": "none", "nvidia": False})


def test_fewer_gpus_than_expected() -> None:
    finding = only(gpus=HEALTHY["gpus"][:7])
    assert (finding.what, finding.severity) == ("7 GPUs found, expected at least 8", ERROR)
    assert "dmesg" in finding.todo
    finding = only(gpus=[])
    assert finding.what == "0 GPUs found, expected at least 8"
    assert "install the NVIDIA driver" in finding.todo
    assert none(Expectation(gpus=4))


def test_broken_driver_is_one_finding_with_the_numbers() -> None:
    finding = only(gpus=[], gpus_error="Driver/library version mismatch")
    assert finding.what == "nvidia-smi fails and shows 0 GPUs, expected 8: Driver/library version mismatch"
    assert finding.severity == ERROR
    # Where no GPU is needed it is only worth knowing; where any number will do it is an error.
    assert only(Expectation(gpus=0), gpus=[], gpus_error="x").severity == WARNING
    assert only(Expectation(), gpus=[], gpus_error="x").severity == ERROR


def test_lost_gpu_is_found_though_the_others_answer() -> None:
    finding = only(gpus=HEALTHY["gpus"][:7], gpus_error="Unable to determine the device handle for GPU7")
    assert finding.what.startswith("nvidia-smi fails and shows 7 GPUs, expected 8: Unable to determine")


def test_gpus_of_different_models_are_a_warning() -> None:
    gpus = [*HEALTHY["gpus"][:6], *({**gpu, "name": "NVIDIA A100"} for gpu in HEALTHY["gpus"][6:])]
    finding = only(gpus=gpus)
    assert finding.severity == WARNING
    assert f"2 x NVIDIA A100, 6 x {H100}" in finding.what


def test_containers_cannot_have_the_gpus() -> None:
    engine = {**HEALTHY["engine"], "nvidia": False}
    finding = only(engine=engine)
    assert finding.severity == ERROR
    assert finding.what.startswith("8 GPUs found, but docker 27.3.1 cannot hand them to containers")
    assert "nvidia-ctk runtime configure" in finding.todo
    assert "nvidia-ctk cdi generate" in only(engine={**engine, "name": "podman"}).todo
    # A head that uses no GPU does not care.
    assert none(Expectation(gpus=0), engine=engine)


def test_hcas_that_are_down_are_listed() -> None:
    finding = only(hcas=[hca("mlx5_0", "up"), hca("mlx5_1", "down")])
    assert finding.what == ("1 HCA ports up, expected at least 2 (told by ibdev2netdev); down: mlx5_1 port 1 (ib1)")
    assert finding.severity == ERROR
    assert only(hcas=[], hca_source="none").what == "no HCA found, expected at least 2 ports up"
    assert none(Expectation(hcas=1), hcas=[hca("mlx5_0", "up"), hca("mlx5_1", "down")])


def test_shared_root_missing() -> None:
    finding = only(mounts=[mount("/private", exists=False, mount_point="/", fstype="ext4", source="/dev/vda")])
    assert finding.severity == ERROR
    assert finding.what == (
        "shared root /private does not exist (the path leads to ext4 from /dev/vda, mounted at /), "
        "expected a directory of type nfs4 or lustre"
    )
    assert "create the directory" in finding.todo


def test_shared_root_on_the_wrong_file_system() -> None:
    finding = only(mounts=[mount("/private", mount_point="/", fstype="ext4", source="/dev/vda")])
    assert finding.what == "shared root /private is ext4 from /dev/vda, mounted at /, expected of type nfs4 or lustre"
    assert finding.severity == ERROR
    assert none(Expectation(shared_root="/private"), mounts=[mount("/private", fstype="ext4")])


def test_shared_root_not_writable() -> None:
    finding = only(mounts=[mount("/private", writable=False)])
    assert 'is not writable, expected writable for user "ray" (uid 1000)' in finding.what
    assert "root_squash" in finding.todo
    finding = only(mounts=[mount("/private", writable=False, options=["ro"])])
    assert "is mounted read-only" in finding.what
    assert finding.todo == "mount it with the option rw"


def test_shared_root_full() -> None:
    finding = only(mounts=[mount("/private", free_bytes=150 * GIB)])
    assert finding.what.endswith("has 150.0 GiB free, expected at least 200 GiB")
    assert none(mounts=[mount("/private", free_bytes=200 * GIB)])


def test_shared_root_that_does_not_answer_is_one_finding() -> None:
    silent = mount("/private", exists=False, error="storage:/export does not answer within 5 s", free_bytes=0)
    finding = only(mounts=[silent])
    assert "cannot be read: storage:/export does not answer within 5 s" in finding.what
    assert "umount -l" in finding.todo


def test_engine_disk_full() -> None:
    disk = {**HEALTHY["disk"], "free_bytes": 20 * GIB}
    finding = only(disk=disk)
    assert finding.what == "/var/lib/docker (ext4 from /dev/vda) has 20.0 GiB free, expected at least 100 GiB"
    assert "docker image prune" in finding.todo


def test_shared_memory_too_small() -> None:
    finding = only(shm_bytes=GIB // 16)
    assert finding.what == "shared memory (/dev/shm) has 0.1 GiB, expected at least 64 GiB"


def test_memory_for_each_gpu_is_a_warning_with_its_source() -> None:
    finding = only(memory_bytes=512 * GIB)
    assert finding.severity == WARNING
    assert finding.what == "512.0 GiB of memory for 8 GPUs, expected at least 80 GiB a GPU (640 GiB in all)"
    assert "verl issue 429" in finding.todo
    # Without an expected number, those that are there.
    any_number = Expectation(memory_gib_per_gpu=80)
    assert only(any_number, memory_bytes=512 * GIB).what.startswith("512.0 GiB of memory for 8 GPUs")
    assert none(any_number, memory_bytes=512 * GIB, gpus=HEALTHY["gpus"][:4])


def test_port_held_by_somebody_else() -> None:
    finding = only(ports_in_use=[8265])
    assert finding.severity == ERROR
    assert finding.what.startswith("port 8265 on 127.0.0.1 is in use")
    assert "cluster_dashboard_port" in finding.todo
    # Neither a container of the cluster that is not up, nor one that has another port.
    assert only(ports_in_use=[8265], containers={"h": container(state="exited", host_ports=[8265])})
    assert only(ports_in_use=[8265], containers={"h": container(host_ports=[8266])})


@pytest.mark.parametrize("how", [{"host_ports": [8265]}, {"host_network": True}])
def test_port_held_by_the_cluster_itself_is_as_it_should_be(how: dict[str, Any]) -> None:
    assert none(ports_in_use=[8265], containers={"mvp-ray-head": container(**how)})


@pytest.mark.parametrize(
    ("cluster", "owner"),
    [(None, "somebody else, without the label argus.verl.cluster"), ("other", 'cluster "other"')],
)
def test_name_held_by_a_container_of_somebody_else(cluster: str | None, owner: str) -> None:
    finding = only(containers={"mvp-ray-head": container(cluster), "mvp-ray-worker-0": container()})
    assert finding.severity == ERROR
    assert finding.what == (
        f'the name "mvp-ray-head" is held by a container of {owner} (running, id 0123456789ab), '
        'expected free or of cluster "mvp"'
    )


def test_port_held_by_another_cluster_is_an_error_beside_the_name() -> None:
    holder = {"mvp-ray-head": container("other", host_ports=[8265])}
    findings = machine_findings("gpu-01", {**HEALTHY, "ports_in_use": [8265], "containers": holder}, FULL)
    assert [finding.what.split(" is ")[0] for finding in findings] == [
        "port 8265 on 127.0.0.1",
        'the name "mvp-ray-head"',
    ]
