from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.port_inventory import (
    port_inventory_findings,
)

Inventory = tuple[dict[str, dict[str, Any]], dict[str, list[str]]]


def shared(**variables: Any) -> Inventory:
    """Head and two workers on the first machine, one worker on the second, all with the host's network."""
    nodes = ["head", "w0", "w1", "w2"]
    machines = zip(nodes, ["gpu-0"] * 3 + ["gpu-1"], strict=True)
    hostvars = {node: {"ray_node_machine": name, "cluster_network": "host", **variables} for node, name in machines}
    return hostvars, {"ray": nodes, "head": nodes[:1], "workers": nodes[1:]}


def test_base_of_ports() -> None:
    hostvars, groups = shared()
    for base, where in ((30000, ["head, w0, w1, w2"]), ("20000", [])):
        # The same number as text is no difference.
        hostvars["w2"]["cluster_port_base"] = base
        assert [finding.where for finding in port_inventory_findings(hostvars, groups)] == where
    for base, where in ((62536, []), (62537, ["gpu-0"])):
        assert [finding.where for finding in port_inventory_findings(*shared(cluster_port_base=base))] == where


PLANNED: dict[Any, str] = {20000: "GCS of head", 20999: "worker processes of head", "21015": "metrics of w0"}


@pytest.mark.parametrize("port", [1023, *PLANNED, 20010, 22999, 1024, 8265, 19999, 20004, 23000, 65535])
def test_port_of_the_dashboard(port: Any) -> None:
    findings = port_inventory_findings(*shared(cluster_dashboard_port=port))
    is_good = port in (1024, 8265, 19999, 20004, 23000, 65535)
    assert [finding.where for finding in findings] == ([] if is_good else ["head"])
    assert all(finding.problem.endswith(PLANNED.get(port, "")) for finding in findings)
    # A container network has no ports on the machine.
    for variables in ({"cluster_dashboard_port": port}, {"cluster_port_base": 65000}):
        assert port_inventory_findings(*shared(**variables, cluster_network="mvp-ray")) == []
