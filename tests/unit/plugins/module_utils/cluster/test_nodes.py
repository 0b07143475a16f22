from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Container, Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.membership import ExpectedNode
from ansible_collections.argus.verl.plugins.module_utils.cluster.nodes import (
    SPECIFICATION_LABEL,
    TOKEN_PATH,
    Action,
    ActionKind,
    NodePlan,
    PlanError,
    PlannedNode,
    Settings,
    accelerator_of,
    container_arguments,
    decide,
    expected_node,
    gpus_of_node,
    plan_node,
    planned_node,
    ray_environment,
    ray_start_arguments,
    specification,
    token_file,
)
from samples import HEALTHY, container, gpus, planned

IMAGES = {"cpu": "argus-verl-cpu:0.1.0", "cuda": "verlai/verl:vllm024.latest"}
SETTINGS = Settings(
    name="worker-0",
    role="worker",
    machine="box",
    cluster="mvp",
    images=IMAGES,
    accelerator="cpu",
    cpus=None,
    gpus=None,
    network="mvp-ray",
    address="worker-0",
    head_address="ray-head",
    dashboard_port=8265,
    shared_root="/private",
    shared_root_source="/srv/shared",
    state_dir="/var/lib/argus-verl",
    shm_gib=2,
    user="",
    env={},
)
WORKERS = ["worker-0", "worker-1"]


def machine(count: int = 0, uid: int = 1001, **changes: Any) -> Machine:
    images = {image: Image(f"sha256:{kind}", {}) for kind, image in IMAGES.items()}
    return replace(HEALTHY, gpus=gpus(count), uid=uid, gid=uid + 1, **{"images": images, **changes})


def plan(gpus_there: int = 0, siblings: list[str] = WORKERS, uid: int = 1001, **changes: Any) -> NodePlan:
    changes.setdefault("accelerator", accelerator_of("auto", [gpus_there]))
    return plan_node(replace(SETTINGS, **changes), machine(gpus_there, uid), siblings)


def head(**changes: Any) -> NodePlan:
    return plan(name="ray-head", role="head", **changes)


# --- The plan ---------------------------------------------------------------------------------------------------------


def test_worker_on_a_machine_without_gpus_has_logical_gpus() -> None:
    worker = plan()
    assert (worker.accelerator, worker.image, worker.image_id) == ("cpu", "argus-verl-cpu:0.1.0", "sha256:cpu")
    assert (worker.gpus, worker.gpu_ids, worker.cpus) == (4, None, 48)
    worker = plan(gpus=2)
    assert (worker.gpus, worker.cpus) == (2, 24)
    worker = plan(gpus=2, cpus=7)
    assert (worker.gpus, worker.cpus) == (2, 7)


def test_cluster_has_one_kind_of_accelerator() -> None:
    assert accelerator_of("auto", [0, 0]) == "cpu"
    # Also for the head, whose machine has none.
    assert accelerator_of("auto", [0, 8]) == "cuda"
    assert accelerator_of("cpu", [8]) == "cpu"


def test_gpus_are_split_between_workers() -> None:
    first, second = (plan(gpus_there=8, name=name) for name in WORKERS)
    assert (first.accelerator, first.image, first.image_id) == ("cuda", IMAGES["cuda"], "sha256:cuda")
    assert (first.gpus, first.gpu_ids) == (4, (0, 1, 2, 3))
    assert (second.gpus, second.gpu_ids) == (4, (4, 5, 6, 7))
    # Ray itself counts the CPUs of a machine with GPUs.
    assert first.cpus is None


@pytest.mark.parametrize(
    ("gpus", "workers", "shares"),
    [
        (7, 2, [(0, 1, 2), (3, 4, 5)]),
        (8, 3, [(0, 1), (2, 3), (4, 5)]),
        (8, 1, [tuple(range(8))]),
        (3, 3, [(0,), (1,), (2,)]),
        (1, 2, [(), ()]),
    ],
)
def test_odd_counts_leave_gpus_unused_instead_of_unequal_shares(
    gpus: int, workers: int, shares: list[tuple[int, ...]]
) -> None:
    names = [f"worker-{number}" for number in range(workers)]
    assert [gpus_of_node(name, names, gpus) for name in names] == shares


def test_worker_may_use_less_than_its_share() -> None:
    second = plan(gpus_there=8, name="worker-1", gpus=2)
    assert (second.gpus, second.gpu_ids) == (2, (4, 5))


@pytest.mark.parametrize(
    ("gpus_there", "asked", "text"),
    [
        (8, 5, "worker-0: requests 5 GPUs, but box has 8 for 2 workers"),
        (1, None, "worker-0: requests its share of the GPUs, but box has 1 for 2 workers"),
        (1, 1, "worker-0: requests 1 GPUs, but box has 1 for 2 workers"),
        (8, 0, "worker-0: requests 0 GPUs, but box has 8 for 2 workers"),
    ],
)
def test_more_gpus_than_the_machine_has(gpus_there: int, asked: int | None, text: str) -> None:
    with pytest.raises(PlanError) as error:
        plan(gpus_there=gpus_there, gpus=asked)
    todo = "set ray_node_gpus, move workers to other machines, or set ray_node_accelerator: cpu"
    assert str(error.value) == f"{text}; {todo}"


def test_cuda_on_a_machine_without_gpus() -> None:
    with pytest.raises(PlanError, match="box has 0 for 2 workers"):
        plan(accelerator="cuda")


def test_accelerator_without_an_image() -> None:
    with pytest.raises(PlanError) as error:
        plan(images={"cuda": "verl:1"})
    assert str(error.value) == (
        "worker-0: cluster_images has no image for the accelerator 'cpu', only for cuda; "
        "add one, or set ray_node_accelerator"
    )


def test_cpu_can_be_chosen_on_a_machine_with_gpus() -> None:
    worker = plan(gpus_there=8, accelerator="cpu")
    assert (worker.accelerator, worker.gpus, worker.gpu_ids) == ("cpu", 4, None)


@pytest.mark.parametrize("gpus_there", [0, 8])
def test_head_has_neither_cpus_nor_gpus(gpus_there: int) -> None:
    planned = head(gpus_there=gpus_there, cpus=16, gpus=4)
    assert (planned.cpus, planned.gpus, planned.gpu_ids) == (0, 0, None)


def test_user() -> None:
    assert plan(uid=1001).user == "1001:1002"
    assert plan(uid=0).user == "1000:1000"
    assert plan(uid=0, user="0:0").user == "0:0"
    assert plan(uid=1001, user="5:6").user == "5:6"


def test_image_that_the_machine_lacks_has_no_id() -> None:
    assert plan(images={"cpu": "elsewhere:1"}).image_id == ""
    lacking = machine(images={IMAGES["cpu"]: None})
    assert plan_node(SETTINGS, lacking, WORKERS).image_id == ""


# --- ray start --------------------------------------------------------------------------------------------------------


def test_ray_start_of_the_head() -> None:
    assert ray_start_arguments(head()) == [
        "ray",
        "start",
        "--block",
        "--node-name=ray-head",
        "--head",
        "--port=6379",
        "--dashboard-host=0.0.0.0",
        "--dashboard-port=8265",
        "--num-cpus=0",
        "--num-gpus=0",
        "--object-store-memory=1073741824",
        "--labels=argus.verl/accelerator=cpu",
        "--disable-usage-stats",
    ]


def test_ray_start_of_a_worker() -> None:
    assert ray_start_arguments(plan()) == [
        "ray",
        "start",
        "--block",
        "--node-name=worker-0",
        "--address=ray-head:6379",
        '--resources={"worker_node": 100}',
        "--num-cpus=48",
        "--num-gpus=4",
        "--object-store-memory=1073741824",
        "--labels=argus.verl/accelerator=cpu",
        "--disable-usage-stats",
    ]


def test_ray_counts_the_cpus_of_machines_with_gpus() -> None:
    arguments = ray_start_arguments(plan(gpus_there=8))
    assert not [argument for argument in arguments if argument.startswith("--num-cpus")]
    assert "--num-gpus=4" in arguments
    assert "--labels=argus.verl/accelerator=cuda" in arguments


def test_on_the_network_of_the_host_the_dashboard_stays_on_the_loopback() -> None:
    arguments = ray_start_arguments(head(network="host", address="10.0.0.1", dashboard_port=9000))
    assert "--dashboard-host=127.0.0.1" in arguments
    assert "--dashboard-port=9000" in arguments
    assert "--node-ip-address=10.0.0.1" in arguments
    # In its own network, the container listens at the default port, and the engine publishes it at the other.
    assert "--dashboard-port=8265" in ray_start_arguments(head(dashboard_port=9000))
    worker = ray_start_arguments(plan(network="host", address="10.0.0.2", head_address="10.0.0.1"))
    assert "--address=10.0.0.1:6379" in worker
    assert "--node-ip-address=10.0.0.2" in worker


# --- The container ----------------------------------------------------------------------------------------------------


def test_container_of_a_worker() -> None:
    worker = plan(gpus_there=8, name="worker-1", env={"NCCL_DEBUG": "INFO"}, shm_gib=0.5)
    arguments = container_arguments(worker)
    assert arguments["name"] == arguments["hostname"] == "worker-1"
    assert arguments["image"] == "verlai/verl:vllm024.latest"
    assert arguments["command"] == ray_start_arguments(worker)
    assert arguments["user"] == "1001:1002"
    assert arguments["shm_size"] == "512M"
    assert arguments["networks"] == [{"name": "mvp-ray"}]
    assert arguments["env"]["NCCL_DEBUG"] == "INFO"
    assert arguments["device_requests"] == [
        {"driver": "nvidia", "device_ids": ["4", "5", "6", "7"], "capabilities": [["gpu"]]}
    ]
    assert arguments["mounts"][0] == {"type": "bind", "source": "/srv/shared", "target": "/private"}
    labels = dict(arguments["labels"])
    assert len(labels.pop(SPECIFICATION_LABEL)) == 16
    assert labels == {"argus.verl.cluster": "mvp", "argus.verl.node": "worker-1", "argus.verl.role": "worker"}
    assert not {"network_mode", "published_ports"} & arguments.keys()


def test_container_of_the_head_publishes_the_dashboard_on_the_loopback_only() -> None:
    arguments = container_arguments(head(dashboard_port=9000))
    assert arguments["published_ports"] == ["127.0.0.1:9000:8265"]
    assert "device_requests" not in arguments
    assert arguments["labels"]["argus.verl.role"] == "head"


def test_on_the_network_of_the_host_nothing_is_published() -> None:
    arguments = container_arguments(head(network="host", address="10.0.0.1"))
    assert arguments["network_mode"] == "host"
    assert not {"hostname", "networks", "published_ports"} & arguments.keys()


def test_token_is_passed_as_a_path() -> None:
    assert token_file("/var/lib/argus-verl", "mvp") == "/var/lib/argus-verl/mvp/auth_token"
    arguments = container_arguments(plan())
    assert arguments["env"]["RAY_AUTH_MODE"] == "token"
    assert arguments["env"]["RAY_AUTH_TOKEN_PATH"] == TOKEN_PATH
    assert "RAY_AUTH_TOKEN" not in arguments["env"]
    assert arguments["mounts"][1] == {
        "type": "bind",
        "source": "/var/lib/argus-verl/mvp/auth_token",
        "target": TOKEN_PATH,
        "read_only": True,
    }


def test_environment_of_a_node_can_be_changed() -> None:
    assert ray_environment(plan(env={"HOME": "/home/ray"}))["HOME"] == "/home/ray"
    assert ray_environment(plan())["HOME"] == "/tmp"


# --- The action -------------------------------------------------------------------------------------------------------


def existing(plan: NodePlan, **changes: Any) -> dict[str, Container]:
    """Return the container of a plan, by name."""
    labels = container_arguments(plan)["labels"]
    return {plan.name: container(**{"labels": labels, "image_id": plan.image_id, **changes})}


def test_missing_container_is_created() -> None:
    worker, other = plan(), plan(name="worker-1")
    action = decide(worker, container_arguments(worker), existing(other))
    assert action == Action(ActionKind.CREATE, "no container", disrupts=False)


def test_container_that_runs_as_planned_is_kept() -> None:
    worker = plan()
    assert decide(worker, container_arguments(worker), existing(worker)) == Action(ActionKind.KEEP, "runs as planned")


@pytest.mark.parametrize("state", ["exited", "created", "dead"])
def test_stopped_container_is_started(state: str) -> None:
    worker = plan()
    action = decide(worker, container_arguments(worker), existing(worker, state=state))
    assert action == Action(ActionKind.START, f"container is {state}", disrupts=False)


@pytest.mark.parametrize(("state", "disrupts"), [("running", True), ("exited", False)])
def test_container_with_other_settings_is_recreated(state: str, disrupts: bool) -> None:
    worker = plan(gpus=2)
    action = decide(worker, container_arguments(worker), existing(plan(), state=state))
    assert action == Action(ActionKind.RECREATE, f"its settings changed, it is {state}", disrupts=disrupts)


@pytest.mark.parametrize(("state", "disrupts"), [("running", True), ("exited", False)])
def test_container_of_an_older_image_is_recreated(state: str, disrupts: bool) -> None:
    worker = plan()
    action = decide(worker, container_arguments(worker), existing(worker, state=state, image_id="sha256:old"))
    assert action == Action(ActionKind.RECREATE, f"argus-verl-cpu:0.1.0 was rebuilt, it is {state}", disrupts=disrupts)


def test_container_without_a_specification_is_recreated() -> None:
    worker = plan()
    action = decide(worker, container_arguments(worker), existing(worker, labels={}))
    assert (action.kind, action.disrupts) == ("recreate", True)


def test_removed_image_is_no_reason_to_restart_a_node() -> None:
    worker = replace(plan(), image_id="")
    there = existing(plan(), image_id="sha256:cpu")
    assert decide(worker, container_arguments(worker), there).kind == "keep"


def test_specification_is_the_same_in_every_run() -> None:
    arguments = container_arguments(plan(env={"A": "1", "B": "2"}))
    again = container_arguments(plan(env={"B": "2", "A": "1"}))
    assert arguments["labels"][SPECIFICATION_LABEL] == again["labels"][SPECIFICATION_LABEL]
    assert json.loads(json.dumps(arguments)) == arguments
    # A change here restarts every node of every cluster in the next run: it belongs in the changelog.
    assert specification({"name": "worker-0"}) == "081fa5f5a64ecefe"
    arguments = container_arguments(replace(plan(user="5:6"), cpus=4))
    assert arguments["labels"][SPECIFICATION_LABEL] == "137b0e669c15b62b"


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": "other"},
        {"images": {"cpu": "argus-verl-cpu:0.2.0"}},
        {"cpus": 8},
        {"gpus": 3},
        {"network": "other"},
        {"network": "host"},
        {"head_address": "elsewhere"},
        {"shared_root": "/shared"},
        {"shared_root_source": "/mnt/shared"},
        {"state_dir": "/opt"},
        {"shm_gib": 4},
        {"user": "7:7"},
        {"env": {"NCCL_DEBUG": "INFO"}},
        {"name": "worker-1"},
        {"role": "head"},
    ],
    ids=str,
)
def test_specification_depends_on_every_setting(change: dict[str, Any]) -> None:
    one, other = container_arguments(plan()), container_arguments(plan(**change))
    assert one["labels"][SPECIFICATION_LABEL] != other["labels"][SPECIFICATION_LABEL]


def test_specification_depends_on_the_gpus() -> None:
    arguments = [container_arguments(plan(gpus_there=8, siblings=s)) for s in (WORKERS, WORKERS[::-1])]
    assert arguments[0]["labels"][SPECIFICATION_LABEL] != arguments[1]["labels"][SPECIFICATION_LABEL]


def test_expected_node() -> None:
    assert expected_node(head()) == ExpectedNode("ray-head", head=True, cpus=0, gpus=0)
    assert expected_node(plan(gpus_there=8)) == ExpectedNode("worker-0", gpus=4, resources={"worker_node": 100})


# --- The planned node -------------------------------------------------------------------------------------------------


def test_planned_node_without_a_container() -> None:
    worker = planned_node(SETTINGS, machine(), WORKERS)
    assert worker.container == container_arguments(plan())
    assert worker == PlannedNode(
        accelerator="cpu",
        image="argus-verl-cpu:0.1.0",
        image_missing=False,
        user="1001:1002",
        container=worker.container,
        action=Action(ActionKind.CREATE, "no container"),
        started_at=None,
        expected=expected_node(plan()),
    )
    assert planned_node(SETTINGS, machine(images={}), WORKERS).image_missing


def test_planned_node_with_a_container() -> None:
    there = existing(plan(), state="exited") | existing(plan(name="worker-1"), started_at="2020-01-01T00:00:00Z")
    worker = planned_node(SETTINGS, machine(containers=there), WORKERS)
    assert worker.action == Action(ActionKind.START, "container is exited")
    assert worker.started_at == "2026-01-12T08:15:30Z"


def test_planned_node_as_json_and_back() -> None:
    worker = planned("recreate", "its settings changed, it is running")
    fact = json.loads(json.dumps(worker.to_json()))
    assert PlannedNode.from_json(fact) == worker
    # Roles read these.
    assert (fact["action"], fact["reason"], fact["disrupts"]) == ("recreate", worker.action.reason, True)
    assert (fact["image"], fact["container"], fact["user"]) == (worker.image, worker.container, "1000:1000")
    # Ansible refuses values of other types, such as members of an Enum.
    assert type(worker.to_json()["action"]) is str
