from __future__ import annotations

import json

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import (
    Image,
    parse_containers,
    parse_engine_info,
    parse_image,
    reports_only_absence,
)
from samples import recorded


@pytest.mark.parametrize("command", ["docker", "podman", "/usr/bin/podman"])
def test_engines_that_answer(command: str) -> None:
    engine = parse_engine_info(command, 0, recorded("podman_info.json"), "")[0]
    assert (engine.name, engine.status, engine.version) == ("podman", "ok", "4.9.4")
    assert (engine.rootless, engine.root_dir) == (True, "/home/ray/.local/share/containers/storage")
    for name, nvidia in (("docker_info", False), ("docker_info_nvidia", True), ("docker_info_cdi", True)):
        engine = parse_engine_info("docker", 0, recorded(f"{name}.json"), "")[0]
        assert (engine.name, engine.status, engine.error, engine.nvidia) == ("docker", "ok", None, nvidia)
    assert engine.root_dir == "/var/lib/docker"


@pytest.mark.parametrize(
    ("rootless", "version", "controllers", "limits"),
    [
        (True, "v2", ["cpu", "memory", "pids"], True),
        (True, "v2", ["memory"], False),
        (True, "v1", ["pids"], False),
        (False, "v1", [], True),
        (False, "v2", ["memory"], True),
    ],
)
def test_whether_podman_can_limit_processes(rootless: bool, version: str, controllers: list[str], limits: bool) -> None:
    info = json.loads(recorded("podman_info.json"))
    info["host"] |= {"cgroupVersion": version, "cgroupControllers": controllers, "security": {"rootless": rootless}}
    engine = parse_engine_info("podman", 0, json.dumps(info), "")[0]
    assert (engine.rootless, engine.limits_pids) == (rootless, limits)


DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"


@pytest.mark.parametrize(
    ("code", "out", "err", "status", "text"),
    [
        (127, "", "docker: not found", "missing", '"docker" is not installed'),
        (1, '{"ID":"","ServerVersion":""}', DENIED, "denied", "permission denied"),
        (0, recorded("docker_info_no_daemon.json"), "", "no_answer", "Is the docker daemon running?"),
        (1, '{"ID":""}', "Cannot connect to the Docker daemon at unix:///x.", "no_answer", "unix:///x"),
        (124, "", "no answer within 30 s", "no_answer", "no answer within 30 s"),
        (125, "", "Error: cannot set up namespace", "failed", "exit code 125: Error: cannot set up namespace"),
    ],
)
def test_reasons_why_the_engine_does_not_answer(code: int, out: str, err: str, status: str, text: str) -> None:
    engine = parse_engine_info("docker", code, out, err)[0]
    assert (engine.status, engine.version, engine.root_dir) == (status, None, None)
    assert text in str(engine.error)


def test_containers_of_docker() -> None:
    containers = parse_containers(recorded("docker_container_inspect.json"))
    head = containers["mvp-ray-head"]
    assert (head.state, head.started_at) == ("running", "2026-11-20T10:36:12.289023026Z")
    assert head.image_id == "sha256:f625180106df0dbcc3914b0c17be4c90e6ffcd77c625aab21a605224d1207055"
    assert (head.labels["argus.verl.cluster"], head.host_ports, head.host_network) == ("mvp", [8265], False)
    assert head.cluster == "mvp"
    assert containers["mvp-ray-worker-0"].host_ports == []
    worker = parse_containers(recorded("podman_container_inspect.json"))["mvp-ray-worker-0"]
    assert (worker.state, worker.started_at, worker.host_network) == ("created", None, True)
    assert worker.image_id == "sha256:9d1c6b7ae25dd1f0c8a5e4b3f2a1908f7e6d5c4b3a29181f0e9d8c7b6a5f4e3d"
    image = parse_image(recorded("docker_image_inspect.json"))
    assert image == Image(head.image_id, {"argus.verl.inputs": "c58f612840dcfcdb"})
    assert parse_image("[]\n") is None


@pytest.mark.parametrize(
    ("err", "absent"),
    [
        ("Error response from daemon: no such image: x:1: No such image: x:1\n", True),
        ("Error: x:1: image not known\n", True),
        ("WARNING: Error loading config file: denied\nError: No such container: x\n", True),
        ("Error response from daemon: No such container: x\nError: layer does not exist\n", False),
        ("no such container\n", False),
        ("", False),
    ],
)
def test_absence_is_the_only_error(err: str, absent: bool) -> None:
    assert reports_only_absence(err) is absent
