from __future__ import annotations

from typing import Any

import pytest
from jobs import MINIMAL

from argus.jobspec.capacity import driver_findings
from argus.jobspec.parse import parse_jobspec

RESOURCES, CPUS = "ray.resources.entrypoint_resources", "ray.resources.entrypoint_num_cpus"


def node(name: str, state: str = "ALIVE", **total: float) -> dict[str, Any]:
    return {"node_name": name, "state": state, "resources_total": total}


NODES = [
    node("head", CPU=99, license=9),
    node("worker-0", worker_node=100, CPU=8, big=1, memory=5.0),
    node("worker-1", worker_node=100, CPU=16),
    node("worker-2", "DEAD", worker_node=100, CPU=64, license=7),
]


def found(resources: dict[str, float], cpus: float = 1, nodes: Any = NODES) -> list[tuple[str, str, str]]:
    given = {"entrypoint_resources": resources, "entrypoint_num_cpus": cpus}
    findings, spec = parse_jobspec({**MINIMAL, "ray": {"resources": given}})
    assert spec
    assert findings == []
    return [(finding.key, finding.what, finding.todo) for finding in driver_findings(spec, nodes)]


@pytest.mark.parametrize(
    ("resources", "cpus"),
    [({"worker_node": 1}, 1), ({"worker_node": 100}, 16), ({"worker_node": 1, "big": 1}, 8), ({"worker_node": 1}, 0)],
)
def test_what_a_worker_has(resources: dict[str, float], cpus: float) -> None:
    assert found(resources, cpus) == []


def test_more_than_any_worker_has() -> None:
    assert found({"worker_node": 100.5}) == [
        (
            RESOURCES,
            "asks for 100.5 worker_node for the driver, but the largest amount is 100, of worker-1",
            "ask for at most 100",
        )
    ]
    assert found({"worker_node": 1}, 16.5) == [
        (CPUS, "asks for 16.5 CPU for the driver, but the largest amount is 16, of worker-1", "ask for at most 16")
    ]


def test_a_resource_that_only_the_head_or_a_dead_worker_has() -> None:
    assert found({"license": 1}) == [
        (RESOURCES, "asks for 1 license for the driver, but no worker has any", "workers have big, worker_node")
    ]


def test_no_worker_has_all_of_it() -> None:
    assert found({"big": 1}, 9) == [
        (
            "ray.resources",
            "no worker has all of 1 big, 9 CPU for the driver",
            "ask for what one worker has; cluster_status.yml shows them",
        )
    ]


def test_a_cluster_without_workers_has_a_finding_of_its_own() -> None:
    assert found({"license": 1}, nodes=NODES[:1]) == []
