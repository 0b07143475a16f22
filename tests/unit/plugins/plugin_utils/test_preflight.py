"""What each machine must have, and the result of what the role preflight registers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.fabric.fault_search import Bandwidth, Verdict, to_json
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Judgement
from ansible_collections.argus.verl.plugins.plugin_utils.preflight import (
    machine_expectations,
    machine_presence,
    missing_image_findings,
    preflight_result,
)
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import with_tolerance
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import node_variables
from samples import HEALTHY

RESULT = {"machine": HEALTHY.to_json(), "expect": {}, "findings": []}
GROUPS = {"head": ["ray-head"], "workers": ["w0", "w1"], "ray": ["ray-head", "w0", "w1"]}


def expected_of(groups: dict[str, list[str]], hostvars: dict[str, Any], network: str) -> dict[str, dict[str, Any]]:
    run_values = {"cluster_port_base": 20000, "cluster_dashboard_port": 9000, "cluster_network": network}
    typed, problems = node_variables(hostvars, hostvars, run_values)
    assert not problems
    return machine_expectations(groups, hostvars, [], typed)


def report(
    hostvars: dict[str, Any], *hosts: str, groups: dict[str, list[str]] | None = None, **others: Any
) -> Judgement:
    groups = groups or {"head": ["a"], "workers": [host for host in hosts if host != "a"]}
    options = {"tier": "fast", "accept": [], "least": None, "images": {}, "builds": {}, "archive": {}, **others}
    arguments = {"hosts": hosts, **options}
    missing, _held = missing_image_findings(arguments, hostvars, groups)
    return preflight_result(arguments, hostvars, groups, missing)


def test_images_that_are_missing_and_accepted_findings() -> None:
    without = {**RESULT, "machine": replace(HEALTHY, images={"verl:1": None}).to_json()}
    hostvars: dict[str, Any] = {"a": {"__preflight": without}, "b": {}}
    images = {"cuda": "verl:1"}

    groups = {"head": ["a"], "workers": ["a"]}

    def missing(**others: Any) -> list[tuple[str, str, str]]:
        findings = report(hostvars, "a", groups=groups, images=images, **others).findings
        return [(finding.where, finding.key, finding.severity) for finding in findings]

    assert missing() == [("a", "machine.image", ERROR)]
    builds = {"cuda": {"context": "/x"}}
    assert missing(builds=builds) == missing(archive={"path": "/x"}) == [("a", "machine.image", WARNING)]
    (accepted,) = report(hostvars, "a", groups=groups, images=images, accept=["machine.image"]).findings
    assert accepted.problem.startswith("accepted: ")
    hostvars["a"] = {"__preflight": RESULT}
    # A machine that --limit leaves out can be named, one of no inventory cannot.
    groups = {"head": ["a"], "workers": ["b"]}
    assert report(hostvars, "a", groups=groups, accept=["gpu.ecc@b"]).findings == []
    assert report(hostvars, "a", accept=["gpu.ecc@c"]).findings != []


REDUCED = {**to_json(Verdict(Bandwidth(10.0))), "backend": "nccl", "processes": 16}


@pytest.mark.parametrize(
    ("collective", "notes", "lines"),
    [
        ({}, [], []),
        ({"skipped": "it needs two workers"}, [("collective.skipped", "all workers")], []),
        (REDUCED, [], ["All-reduce of all workers (16 processes, nccl): 10.00 GB/s"]),
    ],
)
def test_results_become_findings_and_lines(
    collective: dict[str, Any], notes: list[tuple[str, str]], lines: list[str]
) -> None:
    def host(other: str, seconds: float | None) -> dict[str, Any]:
        seen = {other: {"seconds": seconds, "uid": 1, "right": seconds is not None}}
        written = {"trial": {"uid": 1, "seen_uid": 1, "renamed": True}}
        trial = {"__preflight_written": written, "__preflight_compared": {"trial": {"seen": seen, "locks": {}}}}
        return {"__preflight": RESULT, "__preflight_all_reduce": collective, **trial}

    result = report({"a": host("b", 0.1), "b": host("a", None)}, "a", "b")
    assert [(finding.key, finding.where) for finding in result.findings] == [("storage.canary", "b"), *notes]
    crashed = {"__preflight": RESULT, "__preflight_written": {"msg": "Permission denied", "failed": False}}
    assert [(finding.key, finding.problem) for finding in report({"a": crashed}, "a").findings] == [
        ("storage.trial", "Permission denied")
    ]
    assert result.measured == lines


NODES = ["ray-head", "worker-0", "worker-1"]
CLUSTER = {"ray": NODES, "head": ["ray-head"], "workers": NODES[1:]}
ECC = Finding("gpu-1", "7 GPUs", "x").as_dict()


def test_one_policy_for_machines_that_do_not_answer_and_those_with_errors() -> None:
    def severities(node: str, result: dict[str, Any], least: int | None, hosts: list[str] = NODES) -> list[str]:
        """Each node represents its machine."""
        hostvars: dict[str, Any] = {name: {"ray_node_machine": f"of {name}", "__preflight": RESULT} for name in NODES}
        hostvars[node] = {"ray_node_machine": "gpu-1", "__preflight": result}
        present, machines, findings = machine_presence(hosts, hostvars, CLUSTER, least)
        probed = [Finding(**finding) for name in hosts for finding in hostvars[name]["__preflight"].get("findings", [])]
        return [finding.severity for finding in with_tolerance([*findings, *probed], present, machines)]

    for bad in ({"unreachable": True, "msg": "no route"}, {"machine": {}, "findings": [ECC]}):
        for least, severity in ((None, ERROR), (1, WARNING), (2, ERROR)):
            assert severities("worker-1", bad, least) == [severity]
        # The machine of the head is always needed. With --limit, only those of the run count.
        assert severities("ray-head", bad, 0) == [ERROR] and severities("worker-1", bad, None, NODES[:2]) == []


def nodes_of(**others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables of all hosts, which are on one machine."""
    return {name: {"ray_node_machine": "box", **others.get(name.replace("-", "_"), {})} for name in NODES}


def test_expectations_of_a_machine() -> None:
    expected = expected_of(CLUSTER, nodes_of(), "host")["ray-head"]
    assert [ports["first"] for ports in expected["ports"][:2]] == [9000, 20000]
    assert expected["ports"][-1]["last"] == 22999
    assert (expected["rdma"], expected["groups"]) == ("auto", [])
    in_network = expected_of(CLUSTER, nodes_of(), "mvp-ray")["ray-head"]
    assert [ports["first"] for ports in in_network["ports"]] == [9000]
    assert in_network["rdma"] == "false"


@pytest.mark.parametrize(
    ("settings", "network", "rdma"),
    [
        (("auto", False), "host", "auto"),
        (("auto", True), "host", "true"),
        (("false", "True"), "mvp-ray", "true"),
    ],
)
def test_most_demanding_worker_decides(settings: tuple[Any, Any], network: str, rdma: str) -> None:
    workers = {
        "worker_0": {"ray_node_rdma": settings[0], "ray_node_groups": [44]},
        "worker_1": {"ray_node_rdma": settings[1], "ray_node_groups": "render,44"},
    }
    expected = expected_of(CLUSTER, nodes_of(**workers), network)["ray-head"]
    assert (expected["rdma"], expected["groups"]) == (rdma, ["44", "render"])
    # So does the largest object store.
    stores = nodes_of(worker_0={"ray_node_shm_gib": "128"}, worker_1={"ray_node_shm_gib": 8})
    assert expected_of(CLUSTER, stores, network)["ray-head"]["object_store_gib"] == 64


def test_expectations_of_the_host_of_a_process() -> None:
    process = {"ray_node_runtime": "process", "ray_node_env": {"NCCL_IB_HCA": "=mlx5_0"}}
    hostvars = dict.fromkeys(GROUPS["ray"], process)
    expected = expected_of(GROUPS, hostvars, "mvp-ray")
    assert list(expected) == GROUPS["ray"]
    assert [port["first"] for port in expected["ray-head"]["ports"][:2]] == [9000, 20000]
    assert {port["node"] for port in expected["w1"]["ports"]} == {"w1"}
    assert expected["w1"]["ports"][0]["first"] == 21010
    # Its address is found on the host.
    assert (expected["w1"]["address"], expected["w1"]["network_env"]) == ("", {"NCCL_IB_HCA": "=mlx5_0"})
    assert (expected["w1"]["rdma"], expected["w1"]["trains"]) == ("auto", True)
