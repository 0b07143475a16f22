from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.port_inventory import (
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


@pytest.mark.parametrize("variables", [{}, {"cluster_port_base": 30000}, {"cluster_port_base": "30000"}])
def test_correct_inventory(variables: dict[str, Any]) -> None:
    assert port_inventory_findings(*shared(**variables)) == []


def test_base_that_differs() -> None:
    hostvars, groups = shared()
    hostvars["w2"]["cluster_port_base"] = 30000
    (finding,) = port_inventory_findings(hostvars, groups)
    assert (finding.where, finding.severity) == ("head, w0, w1, w2", "error")
    # The same number as text is no difference.
    hostvars["w2"]["cluster_port_base"] = "20000"
    assert port_inventory_findings(hostvars, groups) == []


def test_ports_beyond_the_last() -> None:
    assert port_inventory_findings(*shared(cluster_port_base=62536)) == []
    (finding,) = port_inventory_findings(*shared(cluster_port_base=62537))
    assert finding.where == "gpu-0" and "62536" in finding.todo


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
