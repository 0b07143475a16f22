from __future__ import annotations

from typing import Any

import pytest
from jobs import MINIMAL

from argus.jobspec.capacity import driver_findings
from argus.jobspec.parse import parse_jobspec


def node(name: str, state: str = "ALIVE", **total: float) -> dict[str, Any]:
    return {"node_name": name, "state": state, "resources_total": total}


NODES = [
    node("head", CPU=99, license=9),
    node("worker-0", worker_node=100, CPU=8, big=1, memory=5.0),
    node("worker-1", worker_node=100, CPU=16),
    node("worker-2", "DEAD", worker_node=100, CPU=64, license=7),
]


def found(resources: dict[str, float], cpus: float = 1, nodes: Any = NODES) -> list[tuple[str, str]]:
    given = {"entrypoint_resources": resources, "entrypoint_num_cpus": cpus}
    findings, spec = parse_jobspec({**MINIMAL, "ray": {"resources": given}})
    assert spec
    assert findings == []
    return [(finding.key, finding.what) for finding in driver_findings(spec, nodes)]


@pytest.mark.parametrize(
    ("resources", "cpus"),
    [({"worker_node": 1}, 1), ({"worker_node": 100}, 16), ({"worker_node": 1, "big": 1}, 8), ({"worker_node": 1}, 0)],
)
def test_what_a_worker_has(resources: dict[str, float], cpus: float) -> None:
    assert found(resources, cpus) == []


@pytest.mark.parametrize(
    ("resources", "cpus", "most"),
    [
        ({"worker_node": 100.5}, 1, "100 worker_node, 16 CPU"),
        ({"worker_node": 1}, 16.5, "100 worker_node, 16 CPU"),
        # Of the head, and of a dead worker.
        ({"license": 1}, 0, "0 license"),
        # Each of another worker.
        ({"big": 1}, 9, "1 big, 16 CPU"),
    ],
)
def test_what_no_worker_has(resources: dict[str, float], cpus: float, most: str) -> None:
    ((key, what),) = found(resources, cpus)
    assert key == "ray.resources" and what.endswith(most)


def test_a_cluster_without_workers_has_a_finding_of_its_own() -> None:
    assert found({"license": 1}, nodes=NODES[:1]) == []
