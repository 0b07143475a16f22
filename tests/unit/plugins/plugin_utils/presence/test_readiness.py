"""The nodes that are expected after a run, from what its tasks have registered."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import ExpectedNode, compare_nodes
from ansible_collections.argus.verl.plugins.plugin_utils.plan.actions import PlannedNode
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import INSPECTED, LOG, STARTED, RunResults
from samples import planned

NODES = ["ray-head", "worker-0", "worker-1"]


def node(name: str, *arguments: Any, **changed: Any) -> PlannedNode:
    expected = replace(planned().expected, name=name, head=name == "ray-head", absent=changed.pop("absent", ""))
    return planned(*arguments, **{"expected": expected, "host": "ray-head", **changed})


def results(*nodes: PlannedNode, **registered: dict[str, Any]) -> RunResults:
    """registered: what the tasks have registered, by the names of nodes."""
    plan = {
        "nodes": {planned.expected.name: planned.to_json() for planned in nodes},
        "machines": {"ray-head": {"name": "box"}},
    }
    names = {"started": STARTED, "inspected": INSPECTED, "logs": LOG}
    hostvars = {
        node: {names[key]: result for key, result in registered.get(node.replace("-", "_"), {}).items()}
        for node in NODES
    }
    return RunResults(hostvars, plan)


def expected(run: RunResults, head_answers: bool = False) -> dict[str, ExpectedNode]:
    return {node.name: node for node in run.expected(head_answers)}


def test_what_a_machine_knows_of_a_node_counts_before_ray_notices() -> None:
    head, exited = node("ray-head", state="running"), node("worker-0", "start", state="exited")
    nodes = expected(results(head, exited, node("worker-1", "create", state="")))
    assert [node.absent for node in nodes.values()] == ["", "its container is exited", "it has no container"]
    alive = [
        {"node_name": name, "state": "ALIVE", "is_head_node": name == "ray-head", "start_time_ms": 100_000.0}
        | {"resources_total": {"CPU": 48, "GPU": 4, "worker_node": 100}}
        for name in nodes
    ]
    assert compare_nodes(list(nodes.values()), alive).missing == ["worker-0", "worker-1"]
    # The engine has started it again meanwhile.
    alive[1]["start_time_ms"] = (time.time() + 5) * 1000
    assert compare_nodes(list(nodes.values()), alive).missing == ["worker-1"]


def test_nodes_that_will_not_come_have_the_reason() -> None:
    crashed = {"started": {"changed": True}, "inspected": {"stdout": "restarting 1 3"}}
    silent = node("worker-1", "none", absent="its machine other: does not answer: no route")
    run = results(
        node("ray-head"),
        node("worker-0"),
        silent,
        ray_head={"started": {"failed": True, "msg": "no such device"}},
        worker_0=crashed,
    )
    assert {name: node.absent for name, node in expected(run, head_answers=True).items()} == {
        "ray-head": "its container could not be started: no such device",
        "worker-0": "its container ended 3 times, and was started again each time",
        "worker-1": "its machine other: does not answer: no route",
    }
    log = {"stdout_lines": ["started"], "stderr_lines": ["wrong token"]}
    assert results(silent, worker_1={"logs": log}).log("worker-1") == ["started", "wrong token"]
    assert run.log("worker-0") == []
    # A process.
    process = node("worker-0", "start", process={"directory": "/nodes/worker-0"})
    for state, code, restarts, words in (("running", 1, 2, "2 times"), ("stopped", None, 0, "exit code 0")):
        inspection = {"node": {"state": state, "exit_code": code, "restarts": restarts}}
        ended = results(process, worker_0={"started": {"changed": True}, "inspected": inspection})
        absent = expected(ended, True)["worker-0"].absent
        assert absent.startswith("its process ended") and words in absent
    # One restart is no loop, and neither are restarts before this run.
    for result in ({"changed": True}, {"changed": False}):
        once = {"started": result, "inspected": {"stdout": f"running 0 {1 if result['changed'] else 9}"}}
        assert expected(results(node("worker-0"), worker_0=once), True)["worker-0"].absent == ""
    # A worker may have to wait for its head. A head that ends again and again has no such reason.
    assert expected(run)["worker-0"].absent == ""
    head = expected(results(node("ray-head"), ray_head=crashed))["ray-head"]
    assert head.absent.startswith("its container ended 3 times") and head.head
