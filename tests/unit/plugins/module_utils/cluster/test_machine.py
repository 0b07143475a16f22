from __future__ import annotations

import json
from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import DeviceFile
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import EngineStatus, Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from samples import DOCKER, HEALTHY, container, gpus

FULL = replace(
    HEALTHY,
    containers={"ray-head": container(), "registry": container(None), "prod-head": container("prod")},
    images={"argus-verl-cpu:0.1.0": Image("sha256:1", {"a": "b"}), "verl:1": None},
    gpus=gpus(1),
    ports_in_use=[8265],
    ephemeral_ports=[32768, 60999],
    reserved_ports=[[8080, 8080]],
    rdma_devices=(DeviceFile("/dev/infiniband/uverbs0", 0o666, 0, 0),),
)


def test_machine_as_json_and_back() -> None:
    answer = json.loads(json.dumps(FULL.to_json()))
    assert Machine.from_json(answer) == FULL
    assert Machine.from_json(replace(FULL, disk=None).to_json()).disk is None
    assert answer["gpus"][0]["memory_mib"] == 81559
    assert answer["images"] == {"argus-verl-cpu:0.1.0": {"id": "sha256:1", "labels": {"a": "b"}}, "verl:1": None}
    assert answer["containers"]["registry"]["labels"] == {}


def test_json_holds_plain_text_only() -> None:
    """Ansible refuses values of other types, such as members of an Enum."""
    engine = replace(DOCKER, status=EngineStatus.NO_ANSWER)
    status = replace(FULL, engine=engine).to_json()["engine"]["status"]
    assert (status, type(status)) == ("no_answer", str)


def test_containers_of_a_cluster() -> None:
    assert FULL.nodes == ["ray-head"]
    assert replace(FULL, cluster="other").nodes == []
