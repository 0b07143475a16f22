"""Playbooks refuse before they change anything, with a message that has the value, the place and what to do."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from system import HEAD, INVENTORY, REPO, playbook, said

pytestmark = pytest.mark.usefixtures("no_cluster")


def traces() -> str:
    """Return everything that a run leaves on this machine, except data."""
    state = sorted(str(path) for path in (REPO / ".cache" / "test" / "state").rglob("*"))
    options = ["--quiet", "--all", "--filter", "label=argus.verl.cluster=test"]
    containers = subprocess.run(["docker", "ps", *options], text=True, capture_output=True, check=True).stdout
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
    groups = {"children": {"head": {"hosts": head}, "workers": {"hosts": workers}}}
    file.write_text(yaml.safe_dump({"ray": {**groups, "vars": {"ansible_connection": "local"}}}))
    (tmp_path / "group_vars").symlink_to(INVENTORY / "group_vars")
    return (file,)


def test_two_heads(tmp_path: Path) -> None:
    hosts = inventory(tmp_path, {"test-ray-head": {}, "test-ray-head-2": {}}, {"test-ray-worker-0": {}})
    refused("group head", "has 2 hosts (test-ray-head, test-ray-head-2)", "keep exactly one", inventories=hosts)


def test_all_problems_of_an_inventory_are_reported_at_once(tmp_path: Path) -> None:
    hosts = inventory(tmp_path, {"test-ray-head": {"ray_node_gpu": 2}}, {})
    refused("group workers", "has no hosts", "ray_node_gpu", 'did you mean "ray_node_gpus"?', inventories=hosts)


@pytest.mark.parametrize(
    ("verb", "name"), [("validate", ""), ("cluster_up", "a/b"), ("cluster_status", "-rf"), ("cluster_down", "..")]
)
def test_names_that_are_not_names(verb: str, name: str) -> None:
    """With '..', cluster_down would remove the state of all clusters."""
    before = traces()
    done = playbook(verb, check=False, cluster_name=name)
    assert done.returncode != 0, done.stdout
    assert f"cluster_name is {name!r}" in said(done.stdout), done.stdout + done.stderr
    assert "changed=0" in done.stdout and "changed=1" not in done.stdout
    assert traces() == before


def test_engine_without_an_answer() -> None:
    environment = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    refused(
        "localhost", "container engine not usable", "nowhere/docker.sock", "start its daemon", environment=environment
    )


def test_image_that_no_registry_has() -> None:
    images = {"cpu": "127.0.0.1:1/no-such-image:0"}
    refused("127.0.0.1:1/no-such-image", "images/cpu/build.py", "cluster_images", cluster_images=images)


def test_too_little_space() -> None:
    refused("localhost", "GiB free, expected at least 99999 GiB", "docker image prune", preflight_disk_free_gib=99_999)


def test_missing_shared_root() -> None:
    refused("shared root /nowhere/shared does not exist", "or create the", shared_root_source="/nowhere/shared")


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_port_in_use(used_port: int) -> None:
    refused("localhost", f"port {used_port}", "cluster_dashboard_port", cluster_dashboard_port=used_port)


def test_container_name_of_another_owner() -> None:
    foreign = ["docker", "create", "--name", HEAD, "argus-verl-cpu:0.1.0", "true"]
    subprocess.run(foreign, check=True, capture_output=True)
    try:
        refused(HEAD, "is taken by a container of no cluster", "remove or rename it")
        # cluster_down does not remove it either.
        playbook("cluster_down")
        subprocess.run(["docker", "inspect", HEAD], check=True, capture_output=True)
    finally:
        subprocess.run(["docker", "rm", HEAD], check=True, capture_output=True)


def test_job_without_a_cluster() -> None:
    done = playbook("submit", check=False, jobspec="grpo.yaml")
    assert done.returncode != 0
    assert f"there is no container {HEAD}" in said(done.stdout) and "cluster_up.yml" in done.stdout, done.stdout
    assert done.stdout.count("there is no container") == 1 and "fatal:" not in done.stdout
