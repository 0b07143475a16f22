"""The container of a node with Podman, and what a machine with it looks like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import (
    Engine,
    EngineStatus,
    with_systemd,
    with_tun,
)
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import NodePlan, PlanError
from ansible_collections.argus.verl.plugins.plugin_utils.plan.actions import plan_node_action
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import container_arguments, podman_run
from samples import SETTINGS, WORKERS, head, machine, plan, with_settings

ROLES = Path(__file__).resolve().parents[5] / "roles"
ROOTFUL = Engine("podman", EngineStatus.OK, "4.9.4", root_dir="/var/lib/containers/storage")
ROOTLESS = replace(ROOTFUL, rootless=True, limits_pids=False)


def with_podman(node: NodePlan, engine: Engine = ROOTLESS) -> NodePlan:
    return replace(node, engine=engine, settings=replace(node.settings, cluster_engine="podman"))


def options(node: NodePlan) -> list[str]:
    argv: list[str] = podman_run(container_arguments(node))["argv"]
    return argv[: argv.index(node.image)]


def test_the_command_of_a_worker(tmp_path: Path) -> None:
    assert plan_node_action(SETTINGS, machine(), WORKERS).podman == {}
    for engine in (ROOTFUL, ROOTLESS):
        detected = with_tun(engine, tmp_path)
        assert detected == replace(engine, tun=not engine.rootless)
        podman = plan_node_action(with_settings(SETTINGS, cluster_engine="podman"), machine(engine=detected), WORKERS)
        assert podman.podman["argv"][:2] == ["podman", "run"]
    node = with_podman(plan(devices=["/dev/x:/dev/y"], groups=["44"], ulimits=["nofile:9:9"]))
    command = podman_run(container_arguments(node))
    arguments = options(node)
    secret = podman_run(container_arguments(with_podman(plan(env={"WANDB_API_KEY": "hunter2"}))))
    assert "hunter2" not in " ".join(secret["argv"]) and "WANDB_API_KEY=hunter2\n" in secret["stdin"]
    gpus = container_arguments(with_podman(plan(gpus_there=8, devices=["/dev/x:/dev/x"])))
    assert gpus["devices"] == ["/dev/x:/dev/x", *(f"nvidia.com/gpu={number}" for number in range(4))]
    assert "device_requests" not in gpus
    for option in (
        *("--detach", "--pull=never", "--init", "--restart=always", "--log-driver=k8s-file"),
        *("--name=worker-0", "--user=1001:1002", "--workdir=/tmp", "--shm-size=2048M", "--hostname=worker-0"),
        *("--userns=keep-id", "--volume=/tmp", "--security-opt=no-new-privileges:true", "--security-opt=label=disable"),
        *("--cap-drop=ALL", "--device=/dev/x:/dev/y", "--group-add=44"),
        *("--ulimit=core=0:0", "--ulimit=memlock=-1:-1", "--ulimit=nofile=9:9", "--network=mvp-ray"),
        *("--label=argus.verl.node=worker-0", "--read-only", "--read-only-tmpfs=false", "--env-file=/dev/stdin"),
        "--mount=type=bind,source=/var/lib/argus-verl/mvp/auth_token,target=/run/argus-verl/auth_token,readonly",
        f"--mount=type=bind,source={SETTINGS.shared_root_source},target={SETTINGS.shared_root}",
    ):
        assert arguments[:2] == ["podman", "run"] and option in arguments, option
    assert not [option for option in arguments if option.startswith(("--pids-limit", "--publish", "--env="))]
    assert command["argv"][len(arguments) : len(arguments) + 3] == [node.image, "ray", "start"]
    rootful = options(with_podman(plan(cpus=400, read_only=False), ROOTFUL))
    assert "--pids-limit=102400" in rootful
    assert not [option for option in rootful if option.startswith(("--userns", "--read-only"))]
    assert "--network=host" in options(with_podman(plan(network="host", address="10.0.0.1")))
    assert "--publish=127.0.0.1:8265:8265" in options(with_podman(head(dashboard_port=8265)))


def test_a_variable_of_several_lines_is_refused_and_not_read_as_others() -> None:
    with pytest.raises(PlanError):
        container_arguments(with_podman(plan(env={"X": "1\nRAY_AUTH_MODE=disabled"})))
    assert container_arguments(plan(env={"X": "1\n2"}))["env"]["X"] == "1\n2"


@pytest.mark.parametrize("file", ["start", "remove"])
def test_anonymous_volumes_go_with_the_container(file: str) -> None:
    tasks = yaml.safe_load((ROLES / "ray_node" / "tasks" / f"{file}_podman.yml").read_text())
    commands = [task["ansible.builtin.command"]["argv"] for task in tasks]
    (removed,) = [argv for argv in commands if "rm" in argv]
    assert {"--force", "--volumes", "--ignore"} <= set(removed)


def enable(root: Path, directory: str) -> None:
    wants = root / directory / "default.target.wants"
    wants.mkdir(parents=True)
    (wants / "podman-restart.service").symlink_to("/nowhere/podman-restart.service")


@pytest.mark.parametrize("directory", ["home/ml/.config/systemd/user", "etc/systemd/user"])
def test_containers_of_root_need_the_unit_and_those_of_a_user_lingering_too(tmp_path: Path, directory: str) -> None:
    root, not_yet = tmp_path, replace(ROOTLESS, boots=False, lingers=False)
    for name in ("run/systemd/system", "var/lib/systemd/linger"):
        (root / name).mkdir(parents=True)
    assert with_systemd(ROOTFUL, root, "root", "/root") == replace(ROOTFUL, boots=False)
    enable(root, "etc/systemd/system")
    assert with_systemd(ROOTFUL, root, "root", "/root") == ROOTFUL
    assert with_systemd(ROOTLESS, root / "none", "ml", "/home/ml") == ROOTLESS
    assert with_systemd(ROOTLESS, root, "ml", "/home/ml") == not_yet
    enable(root, directory)
    (root / "var/lib/systemd/linger/other").touch()
    assert with_systemd(ROOTLESS, root, "ml", "/home/ml") == not_yet
    (root / "var/lib/systemd/linger/ml").touch()
    assert with_systemd(ROOTLESS, root, "ml", "/home/ml") == ROOTLESS
