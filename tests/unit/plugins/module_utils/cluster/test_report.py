from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.cluster.membership import NodeRow, NodeState
from ansible_collections.argus.verl.plugins.module_utils.cluster.report import (
    LOG_LINES,
    ActiveJob,
    ClusterInfo,
    ClusterReport,
    cluster_report,
)
from samples import planned

ANSWER = {"complete": True, "missing": [], "rows": [], "waited": 0.0, "problem": "", "jobs": []}
NODES = ["ray-head", "worker-0", "worker-1"]
KEPT = {name: planned() for name in NODES}
DASHBOARD = "http://127.0.0.1:8265 on box"


def info(*states: str, problem: str = "", waited: float = 9) -> ClusterInfo:
    rows = [
        NodeRow(name, "GPU 4", "GPU 4" if state == "alive" else "never joined", NodeState(state))
        for name, state in zip(NODES, states, strict=True)
    ]
    missing = [row.name for row in rows if row.state != NodeState.ALIVE]
    return ClusterInfo(not missing and not problem, missing, rows, waited, problem, jobs=[])


def report(cluster: ClusterInfo, logs: Mapping[str, Sequence[str]] | None = None) -> ClusterReport:
    return cluster_report(cluster, KEPT, logs or {}, "mvp", DASHBOARD)


def test_report_of_a_ready_cluster() -> None:
    plans = KEPT | {"worker-0": planned("create")}
    assert cluster_report(info("alive", "alive", "alive"), plans, {}, "mvp", DASHBOARD) == ClusterReport(
        title="Cluster mvp: 3 of 3 nodes as expected",
        header=["node", "state", "resources", "accelerator", "action"],
        rows=[
            ["ray-head", "alive", "GPU 4", "cpu", "keep"],
            ["worker-0", "alive", "GPU 4", "cpu", "create"],
            ["worker-1", "alive", "GPU 4", "cpu", "keep"],
        ],
        text=["Dashboard: http://127.0.0.1:8265 on box"],
        fail_when="",
    )


def test_slow_head_is_reported() -> None:
    cluster = replace(info("alive", "alive", "alive"), slow=6.6)
    assert report(cluster).text[0] == "The head answers slowly: 7 s. Is its machine overloaded?"
    assert report(cluster).fail_when == ""
    assert ClusterInfo.from_json({**ANSWER, "slow": 6.6}).slow == 6.6
    assert ClusterInfo.from_json(ANSWER).slow == 0


def test_report_of_missing_nodes_has_the_end_of_their_logs() -> None:
    log = [*(f"line {number}" for number in range(40)), "wrong token"]
    found = report(info("alive", "missing", "differs"), {"worker-0": log, "ray-head": ["healthy"]})
    assert found.title == "Cluster mvp: 1 of 3 nodes as expected"
    assert found.header == ["node", "state", "expected", "seen", "accelerator", "action"]
    assert found.rows[1] == ["worker-0", "missing", "GPU 4", "never joined", "cpu", "keep"]
    # worker-1 has no log, so it is only in the table.
    assert found.text == [
        "The last lines of worker-0:",
        *(f"  line {number}" for number in range(40 - LOG_LINES + 1, 40)),
        "  wrong token",
    ]
    assert found.fail_when == (
        "The cluster is not ready after 9 s. Fix the problems shown above and run cluster_up.yml again: "
        "it starts only the nodes that are missing. `docker logs NODE` shows more"
    )


def test_report_without_waiting() -> None:
    assert report(info("alive", "alive", "missing", waited=0.9)).fail_when.startswith("The cluster is not ready. Fix")
    assert "after 1 s" in report(info("alive", "alive", "missing", waited=1)).fail_when


def test_report_without_a_head() -> None:
    seen = info("missing", "missing", "missing", problem="it does not answer")
    plans = {name: planned() for name in NODES[:2]}
    found = cluster_report(seen, plans, {}, "mvp", DASHBOARD)
    assert found.title == "Cluster mvp: 0 of 3 nodes as expected"
    assert found.text == ["The head: it does not answer"]
    # A node outside this run has neither an action nor an accelerator.
    assert found.rows[2] == ["worker-1", "missing", "GPU 4", "never joined", None, None]
    assert found.fail_when


def test_cluster_whose_head_stopped_to_answer_is_not_ready() -> None:
    found = report(info("alive", "alive", "alive", problem="gone"))
    assert found.text == ["The head: gone"]
    assert found.fail_when


def test_info_from_the_module() -> None:
    answer = {
        "complete": False,
        "missing": ["worker-0"],
        "rows": [["worker-0", "GPU 4", "dead", "missing"]],
        "waited": 2.5,
        "problem": "x",
        "jobs": [{"submission_id": "grpo-1", "status": "RUNNING"}],
        "nodes": [{}],
        "unattended": [],
    }
    assert ClusterInfo.from_json(answer) == ClusterInfo(
        complete=False,
        missing=["worker-0"],
        rows=[NodeRow("worker-0", "GPU 4", "dead", NodeState.MISSING)],
        waited=2.5,
        problem="x",
        jobs=[ActiveJob("grpo-1", "RUNNING")],
    )
