from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.node_process import FoundProcess
from ansible_collections.argus.verl.plugins.module_utils.cluster.ports import DASHBOARD_USE, PortRange
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import HEALTHY, PROCESS_HOST, container

DASHBOARD = PortRange("ray-head", DASHBOARD_USE, 8265, 8265)
GCS = PortRange("ray-head", "GCS", 20000, 20000)
PROCESSES = PortRange("worker-0", "worker processes", 21020, 21999)
RANGES = [DASHBOARD, GCS, PROCESSES]


def findings(*ranges: PortRange, **changes: Any) -> list[Finding]:
    expected = Expectation(gpus=8, ports=ranges or RANGES)
    found = machine_findings("box", replace(HEALTHY, **changes), expected)
    return [replace(finding, key="") for finding in found if finding.key == "machine.port"]


def test_free_ports() -> None:
    assert findings(ports_in_use=[22, 8264, 8266, 19999, 20001, 21019, 22000]) == []


def test_port_of_a_service_is_an_error() -> None:
    assert findings(ports_in_use=[22, 20000]) == [
        Finding(
            "box",
            "port 20000 is in use, expected free for GCS of ray-head",
            "end what listens there, a program (ss -ltnp) or another cluster, or choose other ports with "
            "cluster_port_base, as for a second cluster on the same machines",
            ERROR,
        )
    ]


def test_port_of_the_dashboard_is_an_error_with_its_variable() -> None:
    (finding,) = findings(ports_in_use=[8265])
    assert finding.what == "port 8265 is in use, expected free for the dashboard and the Jobs API"
    assert finding.todo.endswith("or choose another port with cluster_dashboard_port")
    assert finding.severity == ERROR


def test_ports_of_worker_processes_are_one_warning() -> None:
    """Ray passes over them."""
    (finding,) = findings(ports_in_use=[21020, 21500, 21999])
    assert finding.what == "ports 21020, 21500, 21999 are in use, expected free for worker processes of worker-0"
    assert finding.severity == WARNING


@pytest.mark.parametrize("state", ["running", "restarting", "paused"])
@pytest.mark.parametrize("network", [{"host_ports": [8265]}, {"host_network": True}])
def test_port_held_by_the_node_itself(network: dict[str, Any], state: str) -> None:
    assert findings(ports_in_use=[8265], containers={"ray-head": container(state=state, **network)}) == []


@pytest.mark.parametrize(
    "containers",
    [
        # Of another node, of another cluster, not up, with another port.
        {"worker-0": container(host_network=True)},
        {"ray-head": container("other", host_network=True)},
        {"ray-head": container(state="exited", host_network=True)},
        {"ray-head": container(host_ports=[8266])},
    ],
)
def test_port_that_is_not_held_by_the_node(containers: dict[str, Any]) -> None:
    assert len(findings(ports_in_use=[8265], containers=containers)) == 1


def test_ports_of_outgoing_connections() -> None:
    (finding,) = findings(ephemeral_ports=[21000, 60999], reserved_ports=[[21000, 21499]])
    assert finding == Finding(
        "box",
        "the kernel may give ports 21500-21999 of the nodes to outgoing connections (net.ipv4.ip_local_port_range is "
        "21000-60999)",
        "reserve them: sysctl -w net.ipv4.ip_local_reserved_ports=20000-21999, and the same in /etc/sysctl.d; or "
        "choose a lower cluster_port_base",
        WARNING,
    )
    assert findings(ephemeral_ports=[32768, 60999]) == []
    # The dashboard alone is no plan: in a container network, nothing else is opened on the machine.
    assert findings(DASHBOARD, ephemeral_ports=[1024, 65535]) == []


@pytest.mark.parametrize(("state", "found"), [("running", 0), ("orphaned", 0), ("stopped", 1), ("", 1)])
def test_port_of_a_node_without_a_container(state: str, found: int) -> None:
    host = replace(PROCESS_HOST, node=FoundProcess(state))
    assert len(findings(ports_in_use=[20000], process=host)) == found


@pytest.mark.parametrize(
    ("ephemeral", "reserved", "given"),
    [
        (None, [], None),
        ((32768, 60999), [], None),
        ((10000, 19999), [], None),
        ((21000, 60999), [], None),
        ((10000, 20000), [], (20000, 20000)),
        ((20999, 60999), [], (20999, 20999)),
        ((1024, 65535), [], (20000, 20999)),
        ((1024, 65535), [(20000, 20999)], None),
        ((1024, 65535), [(1, 65535)], None),
        ((1024, 65535), [(20000, 20500)], (20501, 20999)),
        ((1024, 65535), [(20500, 20999), (20000, 20000)], (20001, 20499)),
        ((1024, 65535), [(1024, 2048), (30000, 30010)], (20000, 20999)),
    ],
)
def test_ports_that_the_kernel_may_give_away(
    ephemeral: tuple[int, int] | None, reserved: list[tuple[int, int]], given: tuple[int, int] | None
) -> None:
    node = PortRange("worker-0", "all", 20000, 20999)
    assert [finding.what for finding in findings(node, ephemeral_ports=ephemeral, reserved_ports=reserved)] == (
        []
        if given is None
        else [
            f"the kernel may give ports {given[0]}-{given[1]} of the nodes to outgoing connections "
            f"(net.ipv4.ip_local_port_range is {'-'.join(map(str, ephemeral or ()))})"
        ]
    )
