from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.ports import DASHBOARD_USE, PortPlan, PortRange
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.port_inventory import (
    Placed,
    machine_ranges,
    placed_nodes,
    port_inventory_findings,
)

Inventory = tuple[dict[str, dict[str, Any]], dict[str, list[str]]]


def shared(**variables: Any) -> Inventory:
    """Head and two workers on the first machine, one worker on the second, all with the host's network."""
    machines = {"head": "gpu-0", "w0": "gpu-0", "w1": "gpu-0", "w2": "gpu-1"}
    hostvars = {
        node: {"ray_node_machine": machine, "cluster_network": "host", **variables}
        for node, machine in machines.items()
    }
    groups = {
        "ray": ["head", "w0", "w1", "w2"],
        "head": ["head"],
        "workers": ["w0", "w1", "w2"],
    }
    return hostvars, groups


def test_nodes_of_each_machine() -> None:
    hostvars, groups = shared()
    hostvars["w3"] = {}
    groups["workers"].append("w3")
    assert placed_nodes(hostvars, groups) == {
        "head": Placed(["head"], ["w0", "w1"]),
        "w2": Placed([], ["w2"]),
        # By default, a node is its own machine.
        "w3": Placed([], ["w3"]),
    }


def test_ports_of_a_machine_with_head_and_workers() -> None:
    assert machine_ranges(Placed(["head"], ["w0", "w1"]), base=20000, dashboard=8265, host_network=True) == [
        PortRange("head", DASHBOARD_USE, 8265, 8265),
        *PortPlan(20000, 0).ranges("head"),
        *PortPlan(20000, 1).ranges("w0"),
        *PortPlan(20000, 2).ranges("w1"),
    ]
    # A worker that is alone has the ports of the first one.
    alone = machine_ranges(Placed([], ["w2"]), base=20000, dashboard=8265, host_network=True)
    assert alone == PortPlan(20000, 1).ranges("w2")


def test_ports_of_a_machine_in_a_container_network() -> None:
    dashboard = [PortRange("head", DASHBOARD_USE, 9000, 9000)]
    assert machine_ranges(Placed(["head"], ["w0"]), base=20000, dashboard=9000, host_network=False) == dashboard
    assert machine_ranges(Placed([], ["w2"]), base=20000, dashboard=9000, host_network=False) == []


@pytest.mark.parametrize("variables", [{}, {"cluster_port_base": 30000}, {"cluster_port_base": "30000"}])
def test_correct_inventory(variables: dict[str, Any]) -> None:
    assert port_inventory_findings(*shared(**variables)) == []


def test_base_that_differs() -> None:
    hostvars, groups = shared()
    hostvars["w2"]["cluster_port_base"] = 30000
    assert port_inventory_findings(hostvars, groups) == [
        Finding(
            "head, w0, w1, w2",
            "cluster_port_base differs: head 20000, w0 20000, w1 20000, w2 30000",
            "set it once for all nodes: workers find the head's GCS by it",
        )
    ]
    # The same number as text is no difference.
    hostvars["w2"]["cluster_port_base"] = "20000"
    assert port_inventory_findings(hostvars, groups) == []


def test_base_that_is_none_is_reported_elsewhere() -> None:
    assert port_inventory_findings(*shared(cluster_port_base="many")) == []


def test_ports_beyond_the_last() -> None:
    assert port_inventory_findings(*shared(cluster_port_base=62536)) == []
    assert port_inventory_findings(*shared(cluster_port_base=62537)) == [
        Finding(
            "gpu-0",
            "its 2 workers would need ports up to 65536 with cluster_port_base 62537",
            "set a base of at most 62536: each node has 1000 ports",
        )
    ]


@pytest.mark.parametrize(
    ("port", "use"),
    [
        (20000, "GCS of head"),
        (20010, "raylet of head"),
        (20999, "worker processes of head"),
        ("21015", "metrics of w0"),
        (22999, "worker processes of w1"),
    ],
)
def test_dashboard_on_a_planned_port(port: Any, use: str) -> None:
    (finding,) = port_inventory_findings(*shared(cluster_dashboard_port=port))
    assert (finding.where, finding.what) == ("head", f"cluster_dashboard_port {port} is also planned for {use}")
    assert "outside of the plan" in finding.todo


@pytest.mark.parametrize("port", [1024, 8265, 19999, 20004, 23000, 65535])
def test_dashboard_beside_the_plan(port: int) -> None:
    assert port_inventory_findings(*shared(cluster_dashboard_port=port)) == []


def test_dashboard_that_needs_root() -> None:
    (finding,) = port_inventory_findings(*shared(cluster_dashboard_port=1023))
    assert finding.what == "cluster_dashboard_port is 1023 with cluster_network: host"
    assert finding.todo.startswith("set a port from 1024 on")


@pytest.mark.parametrize("variables", [{"cluster_dashboard_port": 80}, {"cluster_port_base": 65000}])
def test_container_network_has_no_ports_on_the_machine(variables: dict[str, Any]) -> None:
    assert port_inventory_findings(*shared(**variables, cluster_network="mvp-ray")) == []
