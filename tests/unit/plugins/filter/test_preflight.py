from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.filters.preflight import (
    derived_network,
    machine_expectations,
    preflight_together,
    reach_targets,
)
from samples import HEALTHY

GROUPS = {"head": ["ray-head"], "workers": ["w0", "w1"], "ray": ["ray-head", "w0", "w1"]}


def inventory(network: str = "host") -> dict[str, dict[str, Any]]:
    env = {"NCCL_IB_HCA": "mlx5_7", "NCCL_IB_GID_INDEX": 3, "SECRET": "x"}
    nodes = {
        "ray-head": {"ray_node_machine": "ctl", "ray_node_address": "10.0.0.10"},
        "w0": {"ray_node_machine": "gpu", "ray_node_address": "10.0.0.11", "ray_node_env": env},
        "w1": {"ray_node_machine": "gpu", "ray_node_address": "10.0.0.11"},
    }
    return {name: {**variables, "cluster_network": network} for name, variables in nodes.items()}


def test_network_of_a_machine() -> None:
    worker = {"NCCL_IB_HCA": "mlx5_7", "NCCL_IB_GID_INDEX": "3"}
    found = machine_expectations(GROUPS, inventory(), [], 20000, 8265, "host")
    names = ("address", "trains", "network_env")
    assert [found["w0"][name] for name in names] == ["10.0.0.11", True, worker]
    assert [found["ray-head"][name] for name in names] == ["10.0.0.10", False, {}]
    own = machine_expectations(GROUPS, inventory("mvp-ray"), [], 20000, 8265, "mvp-ray")
    assert [own["ray-head"][name] for name in names] == ["", False, {}]


def probed(address: str) -> dict[str, Any]:
    return {"__preflight": {"expect": {"address": address}}}


def test_targets_are_the_other_machines_with_an_address() -> None:
    hostvars = {"a": probed("10.0.0.1"), "b": probed("10.0.0.2"), "c": probed(""), "d": {}}
    assert reach_targets("a", hostvars, hostvars) == {"b": "10.0.0.2"}
    assert reach_targets("c", hostvars, hostvars) == reach_targets("d", hostvars, hostvars) == {}


def test_machines_that_were_not_probed_have_nothing_derived() -> None:
    assert derived_network(["a"], {"a": {}}) == {}


def test_nothing_was_checked_together() -> None:
    """As in the tier fast, and where tasks were skipped."""
    nothing: dict[str, Any] = {"findings": [], "sections": []}
    assert preflight_together(["a"], {"a": {}}) == nothing
    assert preflight_together([], {}) == nothing
    skipped = {"skipped": True, "skip_reason": "Conditional result was False"}
    assert preflight_together(["a"], {"a": dict.fromkeys(FACTS, skipped)}) == nothing


FACTS = (
    "__preflight_reached",
    "__preflight_written",
    "__preflight_seen",
    "__preflight_alone",
    "__preflight_together",
    "__preflight_all_reduce",
)


@pytest.mark.parametrize("collective", [{}, {"skipped": "it needs two workers"}])
def test_results_become_findings_and_tables(collective: dict[str, Any]) -> None:
    def host(target: str, failed: dict[str, Any], seconds: float | None) -> dict[str, Any]:
        written = {"uid": 1, "seen_uid": 1, "renamed": True, "sync_ms": [1.0, 2.0]}
        seen = {target: {"seconds": seconds, "uid": 1, "right": seconds is not None}}
        return {
            "__preflight_reached": {"reached": {target: {"milliseconds": 0.5, "failed": failed}}},
            "__preflight_written": {"written": written},
            "__preflight_seen": {"seen": seen, "locks": {}},
            "__preflight_all_reduce": collective,
        }

    hostvars = {"a": host("b", {}, 0.1), "b": host("a", {"timeout": [6379]}, None)}
    answer = preflight_together(["a", "b"], hostvars)
    keys = [(finding["key"], finding["where"]) for finding in answer["findings"]]
    note = [("collective.skipped", "all workers")] if collective else []
    assert keys == [("reach.ports", "a"), ("storage.canary", "b"), *note]
    assert [section["title"] for section in answer["sections"]] == ["Who reaches whom", "Shared root"]
    assert all(len(row) == len(section["header"]) for section in answer["sections"] for row in section["rows"])


def test_machine_whose_task_crashed_is_a_finding() -> None:
    hostvars = {"a": {"__preflight_written": {"msg": "Permission denied", "failed": False}}}
    (finding,) = preflight_together(["a"], hostvars)["findings"]
    assert (finding["key"], finding["what"]) == ("storage.trial", "Permission denied")


NODES = ["ray-head", "worker-0", "worker-1"]
CLUSTER = {"ray": NODES, "head": ["ray-head"], "workers": NODES[1:]}


def nodes_of(**others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables of all hosts, which are on one machine unless `others` has other values."""
    hostvars: dict[str, dict[str, Any]] = {name: {"ray_node_machine": "box"} for name in NODES}
    for name, changed in others.items():
        hostvars[name.replace("_", "-")] = {"ray_node_machine": "box", **changed}
    return hostvars


def answer_of(**changed: Any) -> dict[str, Any]:
    """The variables of a probed machine, as Ansible keeps them."""
    machine = replace(HEALTHY, **{"gpus": [], **changed})
    return {"__preflight": {"machine": json.loads(json.dumps(machine.to_json()))}}


def test_expectations_of_a_machine() -> None:
    expected = machine_expectations(CLUSTER, nodes_of(), [], "20000", "9000", "host")["ray-head"]
    assert expected["ports"][0] == {
        "node": "ray-head",
        "use": "the dashboard and the Jobs API",
        "first": 9000,
        "last": 9000,
    }
    assert expected["ports"][1] == {"node": "ray-head", "use": "GCS", "first": 20000, "last": 20000}
    assert expected["ports"][-1]["last"] == 22999
    assert (expected["rdma"], expected["groups"]) == ("auto", [])
    in_network = machine_expectations(CLUSTER, nodes_of(), [], 20000, 9000, "mvp-ray")["ray-head"]
    assert [ports["first"] for ports in in_network["ports"]] == [9000]
    assert in_network["rdma"] == "false"


@pytest.mark.parametrize(
    ("asked", "network", "rdma"),
    [
        (("false", False), "host", "false"),
        (("auto", False), "host", "auto"),
        (("auto", True), "host", "true"),
        (("false", "True"), "mvp-ray", "true"),
    ],
)
def test_most_demanding_worker_decides(asked: tuple[Any, Any], network: str, rdma: str) -> None:
    workers = {
        "worker_0": {"ray_node_machine": "box", "ray_node_rdma": asked[0], "ray_node_groups": [44]},
        "worker_1": {"ray_node_machine": "box", "ray_node_rdma": asked[1], "ray_node_groups": "render,44"},
    }
    expected = machine_expectations(CLUSTER, nodes_of(**workers), [], 20000, 8265, network)["ray-head"]
    assert (expected["rdma"], expected["groups"]) == (rdma, ["44", "render"])


def test_expectations_of_the_host_of_a_process() -> None:
    process = {"ray_node_runtime": "process", "ray_node_env": {"NCCL_IB_HCA": "=mlx5_0"}}
    hostvars = dict.fromkeys(GROUPS["ray"], process)
    expected = machine_expectations(GROUPS, hostvars, [], 20000, 8265, "mvp-ray")
    assert list(expected) == GROUPS["ray"]
    assert [each["first"] for each in expected["ray-head"]["ports"][:2]] == [8265, 20000]
    assert {each["node"] for each in expected["w1"]["ports"]} == {"w1"}
    assert expected["w1"]["ports"][0]["first"] == 21010
    # Its address is found on the host.
    assert (expected["w1"]["address"], expected["w1"]["network_env"]) == ("", {"NCCL_IB_HCA": "=mlx5_0"})
    assert (expected["w1"]["rdma"], expected["w1"]["trains"]) == ("auto", True)


def test_largest_object_store_of_a_machine() -> None:
    hostvars = {
        "head": {"ray_node_machine": "box", "ray_node_shm_gib": "8"},
        "w0": {"ray_node_machine": "box", "ray_node_shm_gib": 128},
        "w1": {"ray_node_machine": "other"},
    }
    groups = {"ray": ["head", "w0", "w1"], "head": ["head"], "workers": ["w0", "w1"]}
    expected = machine_expectations(groups, hostvars, [], 20000, 8265, "ray")
    assert {machine: found["object_store_gib"] for machine, found in expected.items()} == {"head": 64, "w1": 1}
