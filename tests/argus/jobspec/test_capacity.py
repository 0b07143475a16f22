from __future__ import annotations

from typing import Any

import pytest
from jobs import CPU, CUDA, jobspec

from argus.common.findings import Finding
from argus.jobspec import capacity
from argus.jobspec.capacity import (
    Cluster,
    JobSize,
    size_of,
    storage_findings,
)
from argus.jobspec.spec import JobSpec


def node(name: str, state: str = "ALIVE", accelerator: str | None = "cpu", **resources: float) -> dict[str, Any]:
    labels = {"argus.verl/accelerator": accelerator} if accelerator else None
    return {"node_name": name, "state": state, "resources_total": resources, "labels": labels}


def size_findings(spec: JobSpec, cluster: Cluster) -> list[Finding]:
    return list(capacity.size_findings(spec, cluster))


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


def test_no_job_fits_a_mixed_or_an_empty_cluster() -> None:
    mixed = Cluster.of([node(kind, accelerator=kind, CPU=9.0, GPU=1.0, worker_node=1.0) for kind in ("cpu", "cuda")])
    assert [finding.what for finding in size_findings(jobspec(), mixed)] == ["workers have different accelerators"]
    empty = Cluster.of([node("head")])
    assert size_findings(jobspec(), empty) == [
        Finding("cluster", "no worker is alive", "run cluster_up.yml", key="cluster")
    ]


@pytest.mark.parametrize("workload", ["sft", "grpo", "ppo"])
@pytest.mark.parametrize("cluster", [CPU, CUDA], ids=["cpu", "cuda"])
def test_a_job_on_all_workers_fits(workload: str, cluster: Cluster) -> None:
    assert size_findings(jobspec(workload=workload), cluster) == []


def test_a_job_that_is_too_large() -> None:
    findings = size_findings(jobspec(resources={"nnodes": 3, "gpus_per_node": 5}), CPU)
    assert [(finding.key, finding.what) for finding in findings] == [
        ("resources.nnodes", "asks for 3 workers, but 2 are alive"),
        ("resources.gpus_per_node", "asks for 5 GPUs per worker, but workers have 4"),
    ]
    assert findings[0].todo == "ask for at most 2, or add workers to the inventory and run cluster_up.yml"


def test_a_job_that_would_wait_forever_for_cpus() -> None:
    small = Cluster("cuda", workers=1, gpus_per_node=4, cpus_per_node=40)
    (finding,) = size_findings(jobspec(workload="sft"), small)
    assert finding.key == finding.where == "resources.gpus_per_node"
    # The driver takes one of the 40 first.
    assert finding.what == "sft on 4 GPUs asks for 40 CPUs per worker and 1 for the driver, workers have 40"
    assert size_findings(jobspec(workload="sft", resources={"gpus_per_node": 3}), small) == []
    assert size_findings(jobspec(workload="grpo"), small) == []
    assert [finding.what for finding in size_findings(jobspec(workload="grpo"), Cluster("cuda", 1, 4, 12))] == [
        "grpo on 4 GPUs asks for 12 CPUs per worker and 1 for the driver, workers have 12"
    ]
    free = Cluster("cuda", workers=2, gpus_per_node=4, cpus_per_node=40)
    assert size_findings(jobspec(workload="sft", resources={"nnodes": 1}), free) == []


def test_no_job_fits_workers_without_gpus() -> None:
    (finding,) = size_findings(jobspec(), Cluster("cpu", 1, 0, 4))
    assert finding.what == "asks for 0 GPUs per worker, but workers have 0"


def test_a_job_on_some_workers_leaves_one_to_its_driver() -> None:
    """The whole bundle of CPUs of each worker may be used; the message does not mention the driver."""
    two = Cluster("cuda", workers=2, gpus_per_node=4, cpus_per_node=39)
    (finding,) = size_findings(jobspec(workload="sft", resources={"nnodes": 1}), two)
    assert finding.what == "sft on 4 GPUs asks for 40 CPUs per worker, workers have 39"


@pytest.mark.parametrize(("workload", "cpus"), [("sft", 80), ("grpo", 24), ("ppo", 24)])
def test_the_size_of_a_job(workload: str, cpus: int) -> None:
    assert size_of(jobspec(workload=workload), CUDA) == JobSize(nnodes=4, gpus_per_node=8, cpus_per_node=cpus)
    assert size_of(jobspec(workload=workload), CUDA).gpus == 32
    small = size_of(jobspec(workload=workload, resources={"nnodes": 2, "gpus_per_node": 1}), CUDA)
    assert small == JobSize(nnodes=2, gpus_per_node=1, cpus_per_node=cpus // 8)


def test_nodes_without_resources_have_no_capacity() -> None:
    worker = node("worker-0", worker_node=1.0)
    assert Cluster.of([worker]) == Cluster("cpu", workers=1, gpus_per_node=0, cpus_per_node=0)


UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"


@pytest.mark.parametrize(
    ("cpus", "units", "todo"),
    [
        (28, 8, None),
        (28, 9, "set it to 8 in trainer_overrides"),
        (27, 8, "set it to 4 in trainer_overrides"),
        (26, 1, "ask for fewer GPUs, or set ray_node_cpus"),
        (26, 0, None),
    ],
)
def test_storage_units_need_cpus_on_every_worker(cpus: int, units: int, todo: str | None) -> None:
    """24 CPUs for 8 GPUs, 1 for the driver and 1 for the controller; the rest is for storage units, on 4 workers."""
    found = storage_findings(jobspec(), Cluster("cuda", 4, 8, cpus), units)
    assert [(finding.key, finding.todo) for finding in found] == ([(UNITS, todo)] if todo else [])


def test_the_numbers_of_storage_units_that_do_not_fit() -> None:
    (finding,) = storage_findings(jobspec(), Cluster("cuda", 4, 8, 27), 9)
    assert finding.what == (
        "is 9: TransferQueue takes 3 CPUs of every worker, besides 1 for its controller, 1 for the driver and 24 per "
        "worker for grpo; workers have 27"
    )
