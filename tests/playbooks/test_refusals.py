"""What must not be begun is refused before anything is changed, with a message that names value, place and way out."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from system import HEAD, INVENTORY, NODES, REPO, SHARED_ROOT, playbook, said


def traces() -> str:
    """Everything that a run leaves on this machine, but data."""
    state = sorted(str(path) for path in (REPO / ".cache" / "test" / "state").rglob("*"))
    own = ["--quiet", "--all", "--filter", "label=argus.verl.cluster=test"]
    containers = subprocess.run(["docker", "ps", *own], text=True, capture_output=True, check=True).stdout
    networks = subprocess.run(
        ["docker", "network", "ls", "--format", "{{.Name}}"], text=True, capture_output=True
    ).stdout
    return f"{state} {containers} {'test-ray' in networks.split()}"


def refused(*expected: str, inventories: tuple[Path, ...] = (INVENTORY,), **arguments: Any) -> None:
    before = traces()
    done = playbook("cluster_up", check=False, inventories=inventories, **arguments)
    assert done.returncode != 0, done.stdout
    for piece in expected:
        assert piece in said(done.stdout), done.stdout + done.stderr
    assert "changed=0" in done.stdout and "changed=1" not in done.stdout
    assert traces() == before


def inventory(tmp_path: Path, head: dict[str, Any], workers: dict[str, Any]) -> tuple[Path, ...]:
    file = tmp_path / "hosts.yml"
    hosts = {
        "machines": {"hosts": {"localhost": {"ansible_connection": "local"}}},
        "ray": {
            "children": {"head": {"hosts": head}, "workers": {"hosts": workers}},
            "vars": {"ray_node_machine": "localhost"},
        },
    }
    file.write_text(yaml.safe_dump({"all": {"children": hosts}}))
    (tmp_path / "group_vars").symlink_to(INVENTORY / "group_vars")
    return (file,)


def test_two_heads(tmp_path: Path) -> None:
    hosts = inventory(tmp_path, {"test-ray-head": {}, "test-ray-head-2": {}}, {"test-ray-worker-0": {}})
    refused("group head", "has 2 hosts (test-ray-head, test-ray-head-2)", "keep exactly one", inventories=hosts)


def test_no_workers_and_a_misspelt_variable_are_said_at_once(tmp_path: Path) -> None:
    hosts = inventory(tmp_path, {"test-ray-head": {"ray_node_gpu": 2}}, {})
    refused("group workers", "has no hosts", "ray_node_gpu", 'did you mean "ray_node_gpus"?', inventories=hosts)


def test_engine_that_does_not_answer() -> None:
    environment = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    refused(
        "localhost", "container engine not usable", "nowhere/docker.sock", "start its daemon", environment=environment
    )


def test_image_that_nobody_has() -> None:
    images = {"cpu": "127.0.0.1:1/no-such-image:0"}
    refused("127.0.0.1:1/no-such-image", "images/cpu/build.py", "cluster_images", cluster_images=images)


def test_too_little_space() -> None:
    refused("localhost", "GiB free, expected at least 99999 GiB", "docker image prune", preflight_disk_free_gib=99_999)


def test_shared_root_that_is_not_there() -> None:
    refused("shared root /nowhere/shared does not exist", "or create the", shared_root_source="/nowhere/shared")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_port_that_is_taken(taken_port: int) -> None:
    refused("localhost", f"port {taken_port}", "cluster_dashboard_port", cluster_dashboard_port=taken_port)


def test_name_that_somebody_else_has_taken() -> None:
    foreign = ["docker", "create", "--name", HEAD, "argus-verl-cpu:0.1.0", "true"]
    subprocess.run(foreign, check=True, capture_output=True)
    try:
        refused(HEAD, "is held by a container of somebody else", "remove or rename it")
        # Nor is it ours to remove.
        playbook("cluster_down")
        subprocess.run(["docker", "inspect", HEAD], check=True, capture_output=True)
    finally:
        subprocess.run(["docker", "rm", HEAD], check=True, capture_output=True)


def test_a_job_without_a_cluster() -> None:
    done = playbook("submit", check=False, jobspec="grpo.yaml")
    assert done.returncode != 0
    assert f"The head {HEAD} cannot be reached" in done.stdout and "cluster_up.yml" in done.stdout, done.stdout


def test_all_that_is_wrong_with_a_jobspec_is_said_at_once(tmp_path: Path) -> None:
    bad = {"workload": "dpo", "code_path": "/etc/verl", "model": "x", "trainer_override": {}, "submission_id": "A/B"}
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(bad))
    done = playbook("submit", check=False, jobspec=str(tmp_path / "bad.yaml"))
    assert done.returncode != 0
    for piece in ("got: dpo", "/etc/verl is outside", 'mean "trainer_overrides"', "'A/B' is malformed", "dataset"):
        assert piece in said(done.stdout), done.stdout
    assert not list((SHARED_ROOT / "jobs").glob("A*"))


def test_a_running_node_is_not_restarted_under_a_running_job() -> None:
    """Not by new settings, and not by taking the cluster away; the job is named both times."""
    playbook("cluster_up")
    started = started_at()
    job = "from ray.job_submission import JobSubmissionClient as C; import sys; C('http://127.0.0.1:8265').submit_job("
    job += "entrypoint='sleep 600', submission_id='precious', entrypoint_resources={'worker_node': 1})"
    subprocess.run(["docker", "exec", HEAD, "python3", "-c", job], check=True, capture_output=True)

    for name, variables in (("cluster_up", {"ray_node_shm_gib": 3}), ("cluster_down", {})):
        done = playbook(name, check=False, **variables)
        assert done.returncode != 0
        assert "precious" in done.stdout and "allow_disruption" in done.stdout, done.stdout
        assert started_at() == started

    playbook("cluster_up", ray_node_shm_gib=3, allow_disruption=True)
    assert not set(started_at()) & set(started)


def started_at() -> list[str]:
    inspected = ["docker", "inspect", "--format", "{{.Id}} {{.State.StartedAt}}", *NODES]
    return subprocess.run(inspected, text=True, capture_output=True, check=True).stdout.split("\n")[:-1]
