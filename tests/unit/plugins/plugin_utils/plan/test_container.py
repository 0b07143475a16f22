from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import DeviceFile
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import (
    SETTINGS_LABEL,
    SPECIFICATION_LABEL,
)
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import plan_node, settings_label
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import (
    REGISTRY_PATH,
    TOKEN_PATH,
    container_arguments,
    ray_environment,
    ray_start_arguments,
    specification,
    token_file,
)
from samples import SETTINGS, WORKERS, hca, head, machine, plan, with_settings

ROLES = Path(__file__).resolve().parents[5] / "roles"


def test_ray_start() -> None:
    first, worker = ray_start_arguments(head()), ray_start_arguments(plan())
    assert first[:4] == ["ray", "start", "--block", "--node-name=ray-head"]
    assert {"--head", "--port=20000", "--dashboard-host=0.0.0.0", "--dashboard-port=8265", "--num-cpus=0"} <= set(first)
    assert {"--address=ray-head:20000", '--resources={"worker_node": 100}', "--num-gpus=4"} <= set(worker)
    for arguments, base in ((first, 20000), (worker, 21000)):
        ports = [int(flag.partition("=")[2]) for flag in arguments if "-port=" in flag and "dashboard-port" not in flag]
        assert len(ports) >= 8 and ports[-2:] == [base + 20, base + 999]
        assert all(base <= port < base + 1000 for port in ports) and len(set(ports)) == len(ports)
        assert {"--object-store-memory=1073741824", "--disable-usage-stats"} <= set(arguments)
        assert "--labels=argus.verl/accelerator=cpu" in arguments


def test_on_the_network_of_the_host_the_dashboard_stays_on_the_loopback() -> None:
    arguments = ray_start_arguments(head(network="host", address="10.0.0.1", dashboard_port=9000))
    assert {"--dashboard-host=127.0.0.1", "--dashboard-port=9000", "--node-ip-address=10.0.0.1"} <= set(arguments)
    on_host = container_arguments(head(network="host", address="10.0.0.1"))
    assert on_host["network_mode"] == "host" and not {"hostname", "networks", "published_ports"} & on_host.keys()
    # In its own network, the container listens at the default port, and the engine publishes it at the other.
    assert "--dashboard-port=8265" in ray_start_arguments(head(dashboard_port=9000))
    assert container_arguments(head(dashboard_port=9000))["published_ports"] == ["127.0.0.1:9000:8265"]
    worker = ray_start_arguments(plan(network="host", address="10.0.0.2", head_address="10.0.0.1"))
    assert {"--address=10.0.0.1:20000", "--node-ip-address=10.0.0.2"} <= set(worker)
    # Nodes on one machine with its network have ports of their own. In a container network, a worker that joins
    # changes no other.
    for changes, second in (({"network": "host", "address": "10.0.0.1"}, 25000), ({}, 24000)):
        nodes = [head(port_base=23000, **changes), plan(port_base=23000, name="worker-1", **changes)]
        assert [node.ports.first for node in nodes] == [23000, second]


def test_container_of_a_worker() -> None:
    worker = plan(gpus_there=8, name="worker-1", env={"NCCL_DEBUG": "INFO"}, shm_gib=0.5)
    arguments = container_arguments(worker)
    assert arguments["name"] == arguments["hostname"] == "worker-1"
    assert arguments["image"] == "verlai/verl:vllm024.latest"
    # Ray counts the CPUs of machines with GPUs.
    assert arguments["command"] == ray_start_arguments(worker)
    assert {"--num-gpus=4", "--labels=argus.verl/accelerator=cuda"} <= set(arguments["command"])
    assert not [option for option in arguments["command"] if option.startswith("--num-cpus")]
    assert (arguments["user"], arguments["shm_size"]) == ("1001:1002", "512M")
    assert (arguments["networks"], arguments["env"]["NCCL_DEBUG"]) == ([{"name": "mvp-ray"}], "INFO")
    devices = {"driver": "nvidia", "device_ids": ["4", "5", "6", "7"], "capabilities": [["gpu"]]}
    assert arguments["device_requests"] == [devices]
    assert arguments["mounts"][0] == {"type": "bind", "source": "/srv/shared", "target": "/private"}
    labels = dict(arguments["labels"])
    assert len(labels.pop(SPECIFICATION_LABEL)) == 16
    assert labels.pop(SETTINGS_LABEL) == settings_label(worker)
    assert labels == {"argus.verl.cluster": "mvp", "argus.verl.node": "worker-1", "argus.verl.role": "worker"}
    assert not {"network_mode", "published_ports"} & arguments.keys()


def test_container_has_no_rights_that_ray_does_not_need() -> None:
    for node in (plan(), head(), plan(gpus_there=8)):
        arguments = container_arguments(node)
        assert (arguments["security_opts"], arguments["cap_drop"]) == (["no-new-privileges:true"], ["ALL"])
        limits = [arguments[name] for name in ("pids_limit", "ulimits", "read_only")]
        assert limits == [32768, ["core:0:0"], True]
        # Ray's sessions, caches and the working directory are in a volume without a name.
        assert arguments["volumes"] == [arguments["working_dir"]] == [arguments["env"]["HOME"]] == ["/tmp"]
        assert not {"capabilities", "devices", "privileged"} & arguments.keys()
        # The token is passed as a path. No node can write it, or the program.
        assert arguments["env"]["RAY_AUTH_TOKEN_PATH"] == TOKEN_PATH and "RAY_AUTH_TOKEN" not in arguments["env"]
        token = {"source": token_file("/var/lib/argus-verl", "mvp"), "read_only": True}
        assert token.items() <= arguments["mounts"][1].items()
        mounts = {mount["target"]: mount for mount in arguments["mounts"]}
        assert mounts["/opt/argus"]["source"] == "/var/lib/argus-verl/mvp/program"
        assert mounts["/opt/argus"]["read_only"] and mounts["/usr/local/bin/argus"]["read_only"]
    arguments = container_arguments(plan(devices=["/dev/infiniband:/dev/infiniband"], cpus=400, read_only=False))
    assert (arguments["cap_drop"], arguments["pids_limit"], arguments["read_only"]) == (["ALL"], 102_400, False)
    # Without it, InfiniBand cannot register memory.
    assert arguments["ulimits"] == ["core:0:0", "memlock:-1:-1"]


def on_hcas(role: str = "worker", **changes: Any) -> dict[str, Any]:
    """The container of a node on a machine with HCAs."""
    devices = [DeviceFile("/dev/infiniband/uverbs0", 438, 0, 0)]
    settings = with_settings(SETTINGS, role=role, **{"network": "host", **changes})
    return container_arguments(plan_node(settings, machine(hcas=[hca("mlx5_0", "up")], rdma_devices=devices), WORKERS))


def test_workers_on_the_network_of_a_machine_with_hcas_get_what_rdma_needs() -> None:
    arguments = on_hcas()
    assert arguments["devices"] == ["/dev/infiniband:/dev/infiniband"]
    assert arguments["ulimits"] == ["core:0:0", "memlock:-1:-1"]
    assert arguments["capabilities"] == ["IPC_LOCK"]
    # A device that the inventory also names is passed once.
    named = on_hcas(devices=["/dev/infiniband:/dev/infiniband", "/dev/x:/dev/x"])
    assert named["devices"] == ["/dev/infiniband:/dev/infiniband", "/dev/x:/dev/x"]
    for without in (on_hcas(rdma="false"), on_hcas(role="head"), on_hcas(network="mvp-ray")):
        assert not {"devices", "capabilities"} & without.keys()
        assert without["ulimits"] == ["core:0:0"]
    assert on_hcas(rdma="true", role="head")["devices"] == ["/dev/infiniband:/dev/infiniband"]
    limited = on_hcas(ulimits=["nofile:1024:2048", "memlock:65536:65536"], groups=["44", "render"])
    assert limited["ulimits"] == ["core:0:0", "memlock:65536:65536", "nofile:1024:2048"]
    assert limited["groups"] == ["44", "render"]


def test_every_argument_reaches_the_engine() -> None:
    """The task names each argument: one that it forgets would be in the specification only."""
    tasks = yaml.safe_load((ROLES / "ray_node" / "tasks" / "start_docker.yml").read_text())
    options = tasks[0]["community.docker.docker_container"]
    worker = container_arguments(plan(gpus_there=8, devices=["/dev/x:/dev/x"], rdma="true", groups=["44"]))
    on_host = container_arguments(head(network="host", address="10.0.0.1"))
    for name in {**worker, **on_host, **container_arguments(head())}:
        assert options[name].removesuffix(" | default(omit) }}").removesuffix(" }}") == "{{ container." + name
    # Volumes without a name go with the container.
    assert options["keep_volumes"] is False


def test_only_the_head_has_the_registry_and_its_tables() -> None:
    registry = {"type": "bind", "source": "/var/lib/argus-verl/mvp/jobs", "target": REGISTRY_PATH}
    tables = {"type": "bind", "source": "/var/lib/argus-verl/mvp/tables", "target": "/var/lib/argus-verl/tables"}
    for mount in (registry, tables):
        assert mount in container_arguments(head())["mounts"] and mount not in container_arguments(plan())["mounts"]
    environment = ray_environment(head(env={"DASHBOARD_METRIC_PORT": "1"}))
    assert (environment["AUTOSCALER_METRIC_PORT"], environment["DASHBOARD_METRIC_PORT"]) == ("20001", "1")
    assert "AUTOSCALER_METRIC_PORT" not in ray_environment(plan())
    storage = (environment["RAY_gcs_storage"], environment["RAY_gcs_storage_path"])
    assert storage == ("rocksdb", tables["target"])
    assert ray_environment(plan())["RAY_gcs_rpc_server_reconnect_timeout_s"] == "600"
    for node in (head(head_storage="memory"), plan(head_storage="memory")):
        assert not [name for name in ray_environment(node) if name.startswith("RAY_gcs")]
        assert tables not in container_arguments(node)["mounts"]


def test_specification_is_the_same_in_every_run() -> None:
    arguments = container_arguments(plan(env={"A": "1", "B": "2"}))
    again = container_arguments(plan(env={"B": "2", "A": "1"}))
    assert arguments["labels"][SPECIFICATION_LABEL] == again["labels"][SPECIFICATION_LABEL]
    assert json.loads(json.dumps(arguments)) == arguments
    # A change here restarts every node of every cluster in the next run: it belongs in the changelog.
    assert specification({"name": "worker-0"}) == "081fa5f5a64ecefe"
    arguments = container_arguments(replace(plan(user="5:6"), cpus=4))
    assert arguments["labels"][SPECIFICATION_LABEL] == "37ffcee11103eaaa"
