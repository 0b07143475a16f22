from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.legacy import (
    CONTAINER,
    NETWORK,
    PROCESSES,
    Legacy,
    LegacyError,
    LegacyMachine,
    legacy_report,
    refusals,
    seconds_of,
)
from real_processes import alive

OLD, OTHER, OURS, LABELLED = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
ME = pwd.getpwuid(os.getuid()).pw_name
NOW = 1_767_229_200.0  # 2026-01-01T01:00:00Z
CREATED = "2026-01-01T00:00:00.123456789Z"


class Proc:
    """A tree of processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir(parents=True)

    def add(self, pid: int, title: str, container: str = "", environ: str = "", sockets: Sequence[int] = ()) -> None:
        entry = self.root / str(pid)
        (entry / "fd").mkdir(parents=True)
        (entry / "cmdline").write_bytes(title.replace(" ", "\0").encode() + b"\0")
        (entry / "cgroup").write_text(f"12:cpu:/docker/{container}\n0::/\n" if container else "0::/user.slice\n")
        (entry / "environ").write_bytes(environ.encode())
        for number, inode in enumerate(sockets):
            (entry / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
        os.utime(entry, (NOW - pid, NOW - pid))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


def container(identifier: str, name: str, **changes: Any) -> dict[str, Any]:
    config = {"Cmd": ["sleep", "infinity"], "Entrypoint": None, "Labels": None, "User": "", **changes.pop("Config", {})}
    return {"Id": identifier, "Name": f"/{name}", "Created": CREATED, "Config": config, "HostConfig": {}, **changes}


class Docker:
    def __init__(self, *containers: dict[str, Any], networks: Sequence[dict[str, Any]] = (), code: int = 0) -> None:
        self.containers, self.networks, self.code = containers, networks, code
        self.calls: list[list[str]] = []

    def __call__(self, argv: Sequence[str]) -> tuple[int, str, str]:
        self.calls.append(list(argv[1:]))
        assert argv[0] == "docker"
        if self.code:
            return self.code, "", "Cannot connect to the Docker daemon"
        if argv[1] == "ps":
            return 0, "".join(f"{one['Id']}\n" for one in self.containers), ""
        if argv[1:3] == ["container", "inspect"]:
            return 0, json.dumps(list(self.containers)), ""
        if argv[1:3] == ["network", "inspect"]:
            return 0, json.dumps([one for one in self.networks if one["Name"] in argv[3:]]), ""
        return 0, "", ""


def look(docker: Docker, proc: Proc) -> dict[str, Legacy]:
    return {one.name: one for one in LegacyMachine("docker", docker, proc.root, lambda: NOW).look()}


def test_a_container_of_an_earlier_system(proc: Proc) -> None:
    proc.add(50, "/opt/ray/gcs_server --port=6379", OLD)
    proc.add(51, "ray::IDLE", OLD)
    proc.add(52, "ray::WorkerDict.update_actor " + "x" * 100, OLD)
    proc.add(53, "python3 -m verl.trainer.main_ppo a=b", OLD)
    labels = {"com.docker.compose.project.working_dir": "/home2/mvp"}
    ports = {"8265/tcp": [{"HostPort": "8265"}, {"HostPort": "8266"}], "22/tcp": None, "23/tcp": [{"HostPort": ""}]}
    old = container(OLD, "head", Config={"Labels": labels, "User": "ray"}, HostConfig={"PortBindings": ports})
    (found,) = look(Docker(old), proc).values()
    assert (found.name, found.kind, found.owner, found.seconds) == ("head", CONTAINER, "/home2/mvp", 3600.0)
    assert (found.ports, tuple(found.processes)) == ((8265, 8266), (50, 51, 52, 53))
    assert found.work == ("python3 -m verl.trainer.main_ppo a=b", ("ray::WorkerDict.update_actor " + "x" * 100)[:80])


@pytest.mark.parametrize(
    ("name", "config", "is_legacy"),
    [
        ("mvp-ray-head", {}, True),
        ("RAY_worker.0", {}, True),
        ("array-job", {}, False),
        ("x-ray2", {}, False),
        ("box", {"Cmd": ["bash", "-c", "ray start --head --block"]}, True),
        ("box", {"Entrypoint": ["ray"], "Cmd": ["start"]}, True),
        ("box", {"Cmd": None}, False),
    ],
)
def test_a_container_without_a_process_is_known_by_name_or_command(
    name: str, config: dict[str, Any], is_legacy: bool, proc: Proc
) -> None:
    found = look(Docker(container(OLD, name, Config={"User": "1000", **config})), proc)
    assert list(found) == ([name] if is_legacy else [])
    assert not is_legacy or found[name].owner == "1000"


def test_what_is_of_this_collection_is_never_found(proc: Proc) -> None:
    proc.add(60, "/ray/raylet", OURS, "A=1\0ARGUS_VERL_CLUSTER=prod\0")
    proc.add(61, "/ray/raylet", LABELLED)
    proc.add(62, "/ray/raylet", "", "ARGUS_VERL_NODE_DIRECTORY=/home/x\0")
    marked = container(OURS, "gpu-ray-0", NetworkSettings={"Networks": {"mvp-ray": {}}})
    labelled = container(LABELLED, "mvp-ray-head", Config={"Labels": {"argus.verl.cluster": "mvp"}})
    assert look(Docker(marked, labelled, networks=[{"Name": "mvp-ray", "Created": CREATED}]), proc) == {}


def test_networks_of_earlier_containers(proc: Proc) -> None:
    used = {"Networks": {"mvp_default": {}, "bridge": {}, "host": {}, "prod-ray": {}}}
    networks = [
        {"Name": "mvp_default", "Created": CREATED, "Labels": {}},
        {"Name": "prod-ray", "Created": CREATED, "Labels": {"argus.verl.cluster": "prod"}},
        {"Name": "bridge", "Created": CREATED},
        {"Name": "unused", "Created": CREATED},
    ]
    found = look(Docker(container(OLD, "old-ray", NetworkSettings=used), networks=networks), proc)
    assert list(found) == ["old-ray", "mvp_default"]
    assert (found["mvp_default"].kind, found["mvp_default"].seconds) == (NETWORK, 3600.0)


def test_ray_of_a_user_outside_of_containers(proc: Proc) -> None:
    proc.add(70, "/venv/ray/core/gcs_server", sockets=(900, 901, 902))
    proc.add(71, "/venv/bin/python -u /venv/site-packages/ray/dashboard/agent.py", sockets=(903,))
    proc.add(72, "vim notes")
    proc.add(73, "ray::train()")
    row = "   0: 00000000:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0 0 {inode} 1"
    lines = [row.format(port=6379, state="0A", inode=900), row.format(port=40000, state="01", inode=901)]
    (proc.root / "net/tcp").write_text("\n".join(["header", *lines]) + "\n")
    (proc.root / "net/tcp6").write_text("header\n" + row.format(port=52365, state="0A", inode=903) + "\n")
    (found,) = look(Docker(), proc).values()
    assert (found.name, found.kind, found.owner) == (f"ray@{ME}", PROCESSES, ME)
    assert (tuple(found.processes), found.ports, found.work, found.seconds) == (
        (70, 71, 73),
        (6379, 52365),
        ("ray::train()",),
        73,
    )


@pytest.mark.parametrize("title", ["ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent"])
def test_idle_processes_are_no_work(title: str, proc: Proc) -> None:
    proc.add(80, "raylet", OLD)
    proc.add(81, title, OLD)
    assert look(Docker(container(OLD, "x")), proc)["x"].work == ()


def test_a_machine_without_an_engine_has_processes_only(proc: Proc) -> None:
    proc.add(90, "raylet")
    assert list(look(Docker(code=127), proc)) == [f"ray@{ME}"]
    with pytest.raises(LegacyError, match=r'"docker ps -aq --no-trunc" failed: Cannot connect'):
        look(Docker(code=1), proc)


def test_removal_by_the_engine(proc: Proc) -> None:
    docker = Docker()
    machine = LegacyMachine("docker", docker, proc.root)
    machine.remove(Legacy("old-ray", CONTAINER, "root", 0))
    machine.remove(Legacy("mvp_default", NETWORK, "root", 0))
    assert docker.calls == [["rm", "--force", "--volumes", "old-ray"], ["network", "rm", "mvp_default"]]


def looping(trap: str, title: str = "ray::loop") -> int:
    """A child of another process than the test."""
    loop = f'(exec -a {title} bash -c "{trap}while :; do sleep 0.05; done") >/dev/null & echo $!'
    return int(subprocess.run(["setsid", "bash", "-c", loop], stdout=subprocess.PIPE, text=True, check=True).stdout)


def legacy(*processes: int) -> Legacy:
    return Legacy("ray@me", PROCESSES, "me", 0, processes=processes)


@pytest.mark.parametrize("deaf", [False, True])
def test_processes_are_ended(deaf: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.argus.verl.plugins.module_utils.cluster.legacy.END_SECONDS", 0.3)
    pid = looping("trap '' TERM; " if deaf else "")
    LegacyMachine("docker", Docker()).remove(legacy(pid))
    assert not alive(pid)


def test_a_process_that_has_the_number_of_one_that_has_ended_is_left_alone() -> None:
    pid = looping("", "other")
    try:
        LegacyMachine("docker", Docker()).remove(legacy(pid, 2**22 + 1))
        assert alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_running_job_has_to_be_named_twice() -> None:
    found = [Legacy("a", CONTAINER, "root", 0, ("ray::f", "ray::g")), Legacy("b", CONTAINER, "root", 0)]
    assert refusals(found, ["b"], []) == refusals(found, ["a"], ["a"]) == refusals(found, [], []) == []
    told = "a runs ray::f, ray::g: wait for it, or name it in legacy_end_jobs as well"
    assert refusals(found, ["a", "b"], ["b"]) == [told]


def test_times_of_the_engine() -> None:
    assert seconds_of(CREATED) == seconds_of("2026-01-01T01:00:00+01:00") == NOW - 3600
    assert seconds_of("") == 0.0


def test_the_report() -> None:
    found = [
        Legacy("old-ray-head", CONTAINER, "root", 3661, (), (8265, 8266)),
        Legacy("ray@alice", PROCESSES, "alice", 60, ("ray::f",)),
    ]
    answers = {"gpu-0": [asdict(one) for one in found], "gpu-1": [asdict(found[1])]}
    shown = legacy_report(answers, [], [])
    assert shown["rows"] == [
        ["gpu-0", "old-ray-head", "container", "root", "1:01:01", "8265, 8266", ""],
        ["gpu-0", "ray@alice", "processes", "alice", "1:00", "", "ray::f"],
        ["gpu-1", "ray@alice", "processes", "alice", "1:00", "", "ray::f"],
    ]
    assert len(shown["header"]) == 7 and shown["findings"] == []
    assert shown["text"] == ["Nothing was removed. To remove something: -e legacy_remove=NAME,NAME"]
    removed = legacy_report(answers, ["old-ray-haed", "ray@alice", "mine"], [])
    assert [(one.where, one.what, one.todo) for one in removed["findings"]] == [
        ("gpu-0", "ray@alice runs ray::f", "wait for it, or name it in legacy_end_jobs as well"),
        ("gpu-1", "ray@alice runs ray::f", "wait for it, or name it in legacy_end_jobs as well"),
        ("legacy_remove", "old-ray-haed is on no machine", 'did you mean "old-ray-head"?'),
        (
            "legacy_remove",
            "mine is on no machine",
            "take a name of the table; what belongs to this collection: cluster_down.yml",
        ),
    ]
    assert removed["text"] == []
    nothing = legacy_report({"gpu-0": []}, [], [])
    assert (nothing["rows"], nothing["title"]) == ([], "")
    assert nothing["text"] == ["No machine has Ray that this collection has not started"]
