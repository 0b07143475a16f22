from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from argus.cluster.membership import ExpectedNode, NodeRow, NodeState, UnlistedNode, compare_nodes, unlisted_nodes


def node(name: str, state: str = "ALIVE", is_head: bool = False, **resources: float) -> dict[str, Any]:
    """A node as Ray's state API returns it."""
    total = {"memory": 1e9, "node:10.0.0.1": 1.0, **resources}
    return {"node_name": name, "state": state, "is_head_node": is_head, "resources_total": total}


HEAD = node("ray-head", is_head=True)
WORKER = node("worker-0", CPU=48.0, GPU=4.0, worker_node=100.0)
EXPECTED_WORKER = ExpectedNode("worker-0", cpus=48, gpus=4, resources={"worker_node": 100})
EXPECTED = [ExpectedNode("ray-head", head=True, cpus=0), EXPECTED_WORKER]


def test_ready_cluster() -> None:
    seen = compare_nodes(EXPECTED, [HEAD, WORKER])
    assert seen.complete and seen.missing == []
    # Ray counts the CPUs itself.
    any_cpus = ExpectedNode.from_json(replace(EXPECTED_WORKER, cpus=None).to_json())
    assert compare_nodes([any_cpus], [node("worker-0", CPU=17.0, GPU=4.0, worker_node=100.0)]).complete
    assert [row.to_json() for row in seen.rows] == [
        ["ray-head", "CPU 0, GPU 0", "CPU 0, GPU 0", "alive"],
        ["worker-0", "CPU 48, GPU 4, worker_node 100", "CPU 48, GPU 4, worker_node 100", "alive"],
    ]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("since", [None, 2.0])
def test_node_is_not_ready_while_ray_lists_the_one_that_died_as_alive(since: float | None, order: int) -> None:
    expected = [replace(EXPECTED_WORKER, since=since), ExpectedNode("worker-1", cpus=0)]
    dead = {**WORKER, "start_time_ms": 1999, "resources_total": {}}
    nodes = [dead, {**WORKER, "start_time_ms": 2000}, node("worker-1")]
    seen = compare_nodes(expected, nodes[::order])
    assert [row.state for row in seen.rows] == [NodeState.DIFFERS, NodeState.ALIVE]
    assert seen.awaited == ["worker-0"]
    (row,) = compare_nodes(expected[:1], [{**WORKER, "start_time_ms": 1999}]).rows
    assert since is None or (row.seen, row.state) == ("dead", NodeState.MISSING)
    # After Ray has noticed it.
    dead["state"] = "DEAD"
    assert compare_nodes(expected, nodes[::order]).complete


@pytest.mark.parametrize("changes", [{"GPU": 3.0}, {"worker_node": 0.0}, {"is_head": True}], ids=str)
def test_node_that_differs(changes: dict[str, Any]) -> None:
    worker = node("worker-0", **{"CPU": 48.0, "GPU": 4.0, "worker_node": 100.0, **changes})
    nodes = compare_nodes(EXPECTED, [HEAD, worker])
    assert nodes.missing == ["worker-0"]
    assert (nodes.rows[1].expected, nodes.rows[1].state) == ("CPU 48, GPU 4, worker_node 100", NodeState.DIFFERS)


def test_absent_node_is_a_row_with_its_reason_and_nobody_waits_for_it() -> None:
    reason = "its container could not be started"
    expected = [EXPECTED[0], ExpectedNode("worker-0", gpus=8, absent=reason)]
    seen = compare_nodes(expected, [HEAD])
    assert seen.rows[1] == NodeRow("worker-0", "GPU 8", reason, NodeState.MISSING)
    assert (seen.missing, seen.awaited, seen.complete) == (["worker-0"], [], False)
    # The machine does not answer Ansible; the node does its work.
    expected = [EXPECTED[0], ExpectedNode("worker-0", absent=reason)]
    seen = compare_nodes(expected, [HEAD, {**WORKER, "resources_total": {"CPU": 2.0, "node:10.0.0.1": 1.0, "x": 1.0}}])
    assert seen.rows[1] == NodeRow("worker-0", "", "CPU 2, GPU 0, x 1", NodeState.ALIVE)
    assert seen.complete


def test_others_are_awaited_unless_the_head_is_absent() -> None:
    assert compare_nodes(EXPECTED, []).awaited == ["ray-head", "worker-0"]
    absent = replace(EXPECTED[0], absent="its container ended with exit code 1")
    assert compare_nodes([absent, EXPECTED_WORKER], []).awaited == []
    # Ray has it after all.
    assert compare_nodes([absent, EXPECTED_WORKER], [HEAD]).awaited == ["worker-0"]


def test_node_without_new_work_is_not_missing() -> None:
    seen = compare_nodes(EXPECTED, [HEAD, {**WORKER, "draining": True}])
    assert seen.rows[1].state == NodeState.DRAINING
    assert seen.complete
    differs = compare_nodes(EXPECTED, [HEAD, {**WORKER, "draining": True, "resources_total": {}}])
    assert differs.missing == ["worker-0"]


def test_strangers() -> None:
    other = {**node("other", GPU=1.0, worker_node=100.0), "node_ip": "10.0.0.9"}
    again = {**other, "node_ip": "10.0.0.10"}
    strangers = unlisted_nodes([HEAD, WORKER, other, again, node("dead", "DEAD")], {"ray-head", "worker-0"})
    assert strangers == [UnlistedNode("other", "10.0.0.10", "CPU 0, GPU 1, worker_node 100")]
