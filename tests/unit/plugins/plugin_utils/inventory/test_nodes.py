from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import ExpectedNode
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import INPUTS_LABEL, Image
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import (
    PlanError,
    accelerator_of,
    expected_node,
    gpu_share,
    plan_node,
)
from samples import IMAGES, SETTINGS, WORKERS, head, machine, plan, process_plan, with_settings


def test_worker_on_a_machine_without_gpus_has_logical_gpus() -> None:
    worker = plan()
    assert (worker.accelerator, worker.image, worker.image_id) == ("cpu", "argus-verl-cpu:0.1.0", "sha256:cpu")
    assert (worker.gpus, worker.gpu_ids, worker.cpus) == (4, None, 48)
    # Not the first person of the machine, which is usually 1000.
    users = [plan(uid=1001), plan(uid=0), plan(uid=0, user="0:0"), plan(uid=1001, user="5:6")]
    assert [node.user for node in users] == ["1001:1002", "61000:61000", "0:0", "5:6"]
    assert [(node.gpus, node.cpus) for node in (plan(gpus=2), plan(gpus=2, cpus=7))] == [(2, 24), (2, 7)]


def test_image_from_other_inputs_counts_as_missing() -> None:
    labels = {INPUTS_LABEL: "new"}
    host = machine(images={IMAGES["cpu"]: Image("sha256:1", labels)})
    current = plan_node(with_settings(SETTINGS, image_inputs="new"), host, WORKERS)
    assert (current.image_id, current.outdated) == ("sha256:1", False)
    other = plan_node(with_settings(SETTINGS, image_inputs="newer"), host, WORKERS)
    assert (other.image_id, other.outdated) == ("", True)
    # Built by hand, or loaded, without the label.
    assert plan(image_inputs="new").outdated is True
    absent = plan_node(with_settings(SETTINGS, image_inputs="new"), machine(images={}), WORKERS)
    assert (absent.image_id, absent.outdated) == ("", False)
    assert process_plan(image_inputs="new").outdated is False


def test_cluster_has_one_kind_of_accelerator() -> None:
    amd = ["/dev/dri/renderD128"]
    assert accelerator_of("auto", [machine(), machine()]) == "cpu"
    # Also for the head, whose machine has none.
    assert accelerator_of("auto", [machine(), machine(8)]) == "cuda"
    assert accelerator_of("cpu", [machine(8)]) == "cpu"
    assert accelerator_of("auto", [machine(), machine(rocm_gpus=amd)]) == "rocm"
    assert accelerator_of("auto", [machine(8, rocm_gpus=amd)]) == "cuda"
    assert accelerator_of("rocm", [machine(8)]) == "rocm"


def test_gpus_are_split_between_workers() -> None:
    first, second = (plan(gpus_there=8, name=name) for name in WORKERS)
    assert (first.accelerator, first.image, first.image_id) == ("cuda", IMAGES["cuda"], "sha256:cuda")
    assert (first.gpus, first.gpu_ids) == (4, (0, 1, 2, 3))
    assert (second.gpus, second.gpu_ids) == (4, (4, 5, 6, 7))
    # Ray itself counts the CPUs of a machine with GPUs.
    assert first.cpus is None
    assert plan(gpus_there=8, name="worker-1", gpus=2).gpu_ids == (4, 5)
    assert plan(gpus_there=8, accelerator="cpu").gpu_ids is None
    assert expected_node(first) == ExpectedNode("worker-0", gpus=4, resources={"worker_node": 100})
    for planned in (head(cpus=16, gpus=4), head(gpus_there=8, cpus=16, gpus=4)):
        assert (planned.cpus, planned.gpus, planned.gpu_ids) == (0, 0, None)
    assert expected_node(head()) == ExpectedNode("ray-head", head=True, cpus=0, gpus=0)


@pytest.mark.parametrize(
    ("gpus", "workers", "shares"),
    [
        (7, 2, [(0, 1, 2), (3, 4, 5)]),
        (8, 3, [(0, 1), (2, 3), (4, 5)]),
        (8, 1, [tuple(range(8))]),
        (3, 3, [(0,), (1,), (2,)]),
        (1, 2, [(), ()]),
    ],
)
def test_odd_counts_leave_gpus_unused_instead_of_unequal_shares(
    gpus: int, workers: int, shares: list[tuple[int, ...]]
) -> None:
    names = [f"worker-{number}" for number in range(workers)]
    assert [gpu_share(name, names, gpus) for name in names] == shares


@pytest.mark.parametrize(
    ("gpus_there", "changes"),
    [
        *((8, {"gpus": 5}), (1, {}), (1, {"gpus": 1}), (8, {"gpus": 0}), (0, {"accelerator": "cuda"})),
        (0, {"images": {"cuda": "verl:1"}}),
    ],
)
def test_nodes_that_a_machine_cannot_have(gpus_there: int, changes: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="worker-0: "):
        plan(gpus_there=gpus_there, **changes)
