from __future__ import annotations

from typing import Any

import pytest
from jobs import CPU, CUDA, jobspec

from argus.jobspec.capacity import Cluster, JobSize, driver_findings, size_findings, size_of, storage_findings


def node(name: str, state: str = "ALIVE", accelerator: str | None = "cpu", **resources: float) -> dict[str, Any]:
    labels = {"argus.verl/accelerator": accelerator} if accelerator else None
    return {"node_name": name, "state": state, "resources_total": resources, "labels": labels}


def unfit(cluster: Cluster, **changes: Any) -> list[str]:
    return [finding.key for finding in size_findings(jobspec(**changes), cluster)]


def test_the_capacity_is_the_minimum_of_all_live_workers() -> None:
    nodes = [
        node("head"),
        node("worker-0", CPU=48.0, GPU=4.0, worker_node=100.0),
        node("worker-1", CPU=24.0, GPU=8.0, worker_node=100.0),
        node("worker-2", state="DEAD", CPU=1.0, GPU=1.0, worker_node=100.0),
    ]
    assert Cluster.of(nodes) == Cluster("cpu", workers=2, gpus_per_node=4, cpus_per_node=24)


def test_a_replaced_worker_counts_once() -> None:
    worker = node("worker-0", CPU=48.0, GPU=4.0, worker_node=100.0)
    assert Cluster.of([{**worker, "state": "DEAD"}, worker]).workers == 1
    # For a while Ray lists its predecessor as alive, too.
    assert Cluster.of([{**worker, "node_id": "old"}, {**worker, "node_id": "new"}]).workers == 1


def test_a_cluster_without_labels_has_gpus() -> None:
    worker = node("worker-0", accelerator=None, CPU=8.0, GPU=1.0, worker_node=100.0)
    assert Cluster.of([worker]).accelerator == "cuda"


def test_no_job_fits_a_mixed_or_an_empty_cluster_or_one_without_gpus() -> None:
    mixed = Cluster.of([node(kind, accelerator=kind, CPU=9.0, GPU=1.0, worker_node=1.0) for kind in ("cpu", "cuda")])
    assert unfit(mixed) == unfit(Cluster.of([node("head")])) == ["cluster"]
    assert unfit(Cluster("cpu", 1, 0, 4)) == ["resources.gpus_per_node"]


def test_a_job_that_is_too_large() -> None:
    resources = {"nnodes": 3, "gpus_per_node": 5}
    assert unfit(CPU, resources=resources) == ["resources.nnodes", "resources.gpus_per_node"]


@pytest.mark.parametrize(
    ("workload", "workers", "cpus", "resources", "fits"),
    [
        # The driver takes one of the 40 first, unless the job leaves a worker to it.
        ("sft", 1, 40, {}, False),
        ("sft", 1, 40, {"gpus_per_node": 3}, True),
        ("sft", 2, 40, {"nnodes": 1}, True),
        ("sft", 2, 39, {"nnodes": 1}, False),
        ("grpo", 1, 40, {}, True),
        ("grpo", 1, 13, {}, True),
        ("grpo", 1, 12, {}, False),
    ],
)
def test_a_job_that_would_wait_forever_for_cpus(
    workload: str, workers: int, cpus: int, resources: dict[str, int], fits: bool
) -> None:
    keys = unfit(Cluster("cuda", workers, 4, cpus), workload=workload, resources=resources)
    assert keys == ([] if fits else ["resources.gpus_per_node"])


@pytest.mark.parametrize(("workload", "cpus"), [("sft", 80), ("grpo", 24), ("ppo", 24)])
def test_the_size_of_a_job(workload: str, cpus: int) -> None:
    assert size_of(jobspec(workload=workload), CUDA) == JobSize(nnodes=4, gpus_per_node=8, cpus_per_node=cpus)
    assert size_of(jobspec(workload=workload), CUDA).gpus == 32
    small = size_of(jobspec(workload=workload, resources={"nnodes": 2, "gpus_per_node": 1}), CUDA)
    assert small == JobSize(nnodes=2, gpus_per_node=1, cpus_per_node=cpus // 8)


UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"


@pytest.mark.parametrize(
    ("cpus", "units", "most"), [(28, 8, None), (28, 9, "8"), (27, 8, "4"), (26, 1, "fewer"), (26, 0, None)]
)
def test_storage_units_need_cpus_on_every_worker(cpus: int, units: int, most: str | None) -> None:
    """24 CPUs for 8 GPUs, 1 for the driver and 1 for the controller; the rest is for storage units, on 4 workers."""
    findings = storage_findings(jobspec(), Cluster("cuda", 4, 8, cpus), units)
    assert [finding.key for finding in findings] == ([UNITS] if most else [])
    assert all(f" {most} " in finding.remedy for finding in findings)


# --- Resources of the driver ------------------------------------------------------------------------------------------

WITH_RESOURCES = [
    node("head", CPU=99, license=9),
    node("worker-0", worker_node=100, CPU=8, big=1, memory=5.0),
    node("worker-1", worker_node=100, CPU=16),
    node("worker-2", "DEAD", worker_node=100, CPU=64, license=7),
]


@pytest.mark.parametrize(
    ("resources", "cpus", "most"),
    [
        *(({"worker_node": amount}, cpus, "") for amount, cpus in ((1, 1), (100, 16), (1, 0))),
        ({"worker_node": 1, "big": 1}, 8, ""),
        ({"worker_node": 100.5}, 1, "100 worker_node, 16 CPU"),
        ({"worker_node": 1}, 16.5, "100 worker_node, 16 CPU"),
        # Only the head and a dead worker have it.
        ({"license": 1}, 0, "0 license"),
        # Each is on another worker.
        ({"big": 1}, 9, "1 big, 16 CPU"),
    ],
)
def test_what_a_worker_has(resources: dict[str, float], cpus: float, most: str) -> None:
    spec = jobspec(ray={"resources": {"entrypoint_resources": resources, "entrypoint_num_cpus": cpus}})
    findings = driver_findings(spec, WITH_RESOURCES)
    assert [finding.key for finding in findings] == (["ray.resources"] if most else [])
    assert all(finding.problem.endswith(most) for finding in findings)
    # A cluster without workers has a finding of its own.
    assert driver_findings(spec, WITH_RESOURCES[:1]) == []
