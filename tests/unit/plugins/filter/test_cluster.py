from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.filter.cluster import (
    LOG_LINES,
    FilterModule,
    changes,
    cluster_report,
    disruption_findings,
    expected_nodes,
    inventory_findings,
    job_findings,
    machine_work,
    node_plan,
    nodes_of_machine,
    own_containers,
    public_variables,
)

ROLES = Path(__file__).resolve().parents[4] / "roles"
NODES = ["ray-head", "worker-0", "worker-1"]
GROUPS = {"machines": ["box", "other"], "ray": NODES, "head": ["ray-head"], "workers": NODES[1:]}
NO_JOBS: dict[str, Any] = {"problem": "", "jobs": []}
JOBS = {
    "problem": "",
    "jobs": [{"submission_id": "grpo-1", "status": "RUNNING"}, {"submission_id": "sft-2", "status": "PENDING"}],
}
WAY_OUT = "wait for them or stop them, or say -e allow_disruption=true"
ABOUT = {"cluster": "mvp", "dashboard": "http://127.0.0.1:8265 on box"}


def plan(action: str = "keep", reason: str = "runs as planned", **more: Any) -> dict[str, Any]:
    made = {
        "action": action,
        "reason": reason,
        "disrupts": action == "recreate",
        "accelerator": "cpu",
        "image": "argus-verl-cpu:0.1.0",
        "image_missing": False,
        "user": "1000:1000",
        "started_at": "1970-01-01T00:01:00.123456789Z",
        "expected": {"name": "worker-0"},
    }
    return {"ray_node_machine": "box", "__ray_node_plan": made | more}


def all_kept(**others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    hostvars = {"box": {}, "other": {}, **{node: plan() for node in NODES}}
    return hostvars | {name.replace("_", "-"): variables for name, variables in others.items()}


# --- Plans ------------------------------------------------------------------------------------------------------------


def settings(**changed: Any) -> dict[str, Any]:
    return {
        "name": "worker-1",
        "role": "worker",
        "cluster": "mvp",
        "images": {"cpu": "argus-verl-cpu:0.1.0"},
        "accelerator": "auto",
        "cpus": None,
        "gpus": None,
        "network": "mvp-ray",
        "address": "worker-1",
        "head_address": "ray-head",
        "dashboard_port": 8265,
        "shared_root": "/private",
        "shared_root_source": "/private",
        "state_dir": "/var/lib/argus-verl",
        "shm_gib": 2,
        "user": "",
        "env": {},
    } | changed


def looked_at(gpus: int = 0, **images: Any) -> dict[str, dict[str, Any]]:
    machine = {"gpus": [{}] * gpus, "uid": 0, "gid": 0, "images": images, "containers": {}}
    hostvars = all_kept()
    hostvars["box"]["__preflight"] = {"machine": machine}
    return hostvars


def test_the_plan_of_a_node() -> None:
    made = node_plan(settings(), looked_at(**{"argus-verl-cpu:0.1.0": {"id": "sha256:1"}}), GROUPS)
    container = made.pop("container")
    assert made == {
        "accelerator": "cpu",
        "image": "argus-verl-cpu:0.1.0",
        "image_missing": False,
        "user": "1000:1000",
        "action": "create",
        "reason": "no container",
        "disrupts": False,
        "started_at": None,
        "expected": {
            "name": "worker-1",
            "head": False,
            "cpus": 48,
            "gpus": 4,
            "resources": {"worker_node": 100},
        },
    }
    assert container["name"] == "worker-1"
    assert "--num-gpus=4" in container["command"]


def test_the_plan_knows_what_is_there() -> None:
    hostvars = looked_at(**{"argus-verl-cpu:0.1.0": {"id": "sha256:1"}})
    labels = node_plan(settings(), hostvars, GROUPS)["container"]["labels"]
    there = {"state": "exited", "labels": labels, "image_id": "sha256:1", "started_at": "2026-01-12T08:15:30Z"}
    hostvars["box"]["__preflight"]["machine"]["containers"]["worker-1"] = there
    made = node_plan(settings(), hostvars, GROUPS)
    assert (made["action"], made["reason"]) == ("start", "container is exited")
    assert made["started_at"] == "2026-01-12T08:15:30Z"


def test_the_plan_of_the_second_of_two_workers_on_a_machine_with_gpus() -> None:
    made = node_plan(settings(images={"cuda": "verl:1"}), looked_at(gpus=4), GROUPS)
    assert made["image_missing"] is True
    assert made["container"]["device_requests"][0]["device_ids"] == ["2", "3"]


def test_a_plan_without_a_look_at_the_machine() -> None:
    with pytest.raises(AnsibleFilterError) as error:
        node_plan(settings(), all_kept(), GROUPS)
    assert "worker-1: its machine box was not looked at in this run" in str(error.value)
    assert "--limit 'box,worker-1'" in str(error.value)


def test_a_plan_that_does_not_work_out() -> None:
    with pytest.raises(AnsibleFilterError, match="worker-1: asks for 3 GPUs, but box has 4 for 2 workers"):
        node_plan(settings(gpus=3, images={"cuda": "verl:1"}), looked_at(gpus=4), GROUPS)


def test_changes_are_the_rows_of_those_that_do_not_stay() -> None:
    hostvars = all_kept(worker_0=plan("create", "no container"), ray_head=plan("start", "container is exited"))
    groups = {**GROUPS, "machines": ["box"]}
    hostvars["box"] = {"__preflight": {"machine": {"containers": {}}}}
    assert changes(NODES, hostvars, groups, "mvp") == [
        ["ray-head", "start", "container is exited"],
        ["worker-0", "create", "no container"],
    ]
    assert changes(NODES, {**all_kept(), "box": {}}, groups, "mvp") == []


def test_a_node_that_left_the_inventory_is_named_and_left_alone() -> None:
    ours, foreign = {"labels": {"argus.verl.cluster": "mvp"}}, {"labels": {}}
    containers = {"worker-0": ours, "worker-9": ours, "registry": foreign}
    hostvars = {**all_kept(), "box": {"__preflight": {"machine": {"containers": containers}}}}
    (row,) = changes(NODES, hostvars, {**GROUPS, "machines": ["box"]}, "mvp")
    assert row == ["worker-9", "none", "not in the inventory any more; `docker rm -f worker-9` on box ends it"]


def test_the_nodes_of_a_machine() -> None:
    hostvars = all_kept(worker_1={"ray_node_machine": "other"})
    assert nodes_of_machine("box", hostvars, GROUPS) == ["ray-head", "worker-0"]
    assert nodes_of_machine("other", hostvars, GROUPS) == ["worker-1"]
    assert nodes_of_machine("nobody", hostvars, GROUPS) == []


def test_the_work_on_a_machine_is_that_of_the_nodes_it_has_to_start() -> None:
    hostvars = all_kept(
        worker_0=plan("create", user="7:7", image="b", image_missing=True),
        worker_1=plan("create", user="7:7", image="a", image_missing=True),
    )
    assert machine_work("box", hostvars, GROUPS) == {"user": "7:7", "images": ["a", "b"]}
    hostvars = all_kept(worker_0=plan("start", image_missing=False))
    assert machine_work("box", hostvars, GROUPS) == {"user": "1000:1000", "images": []}


def test_a_machine_with_nothing_to_start_has_no_work() -> None:
    nothing = {"user": "", "images": []}
    assert machine_work("box", all_kept(worker_0=plan(image="gone", image_missing=True)), GROUPS) == nothing
    assert machine_work("other", all_kept(), GROUPS) == nothing
    # Nodes that are not in this run (--limit) have no plan.
    without = {name: {"ray_node_machine": "box"} for name in NODES}
    assert machine_work("box", without, GROUPS) == nothing


def test_the_gate_expects_the_planned_nodes_of_this_run() -> None:
    hostvars = all_kept(worker_1={"ray_node_machine": "box"})
    assert expected_nodes(NODES[1:], hostvars) == [{"name": "worker-0", "since": 60.123456}]


def test_a_node_is_not_older_than_its_container() -> None:
    started = {"container": {"State": {"StartedAt": "1970-01-01T01:01:40.5+01:00"}}}
    hostvars = all_kept(
        ray_head=plan("start") | {"__ray_node_started": started},
        worker_0=plan(started_at=None) | {"__ray_node_started": {"skipped": True}},
        worker_1=plan() | {"__ray_node_started": {"container": None}},
    )
    assert [node["since"] for node in expected_nodes(NODES, hostvars)] == [100.5, None, 60.123456]


# --- Jobs -------------------------------------------------------------------------------------------------------------


def finding(where: str, what: str, severity: str = "error") -> dict[str, str]:
    return {"where": where, "what": what, "todo": WAY_OUT, "severity": severity}


def test_jobs_are_named_before_they_are_ended() -> None:
    assert job_findings(NO_JOBS, "mvp", "cluster_down") == []
    assert job_findings(JOBS, "mvp", "cluster_down") == [
        finding("mvp", "cluster_down would end grpo-1 (RUNNING), sft-2 (PENDING)")
    ]


def test_a_head_that_cannot_tell_its_jobs_may_have_some() -> None:
    cluster = {"problem": "no answer", "jobs": []}
    assert job_findings(cluster, "mvp", "cluster_down") == [
        finding("mvp", "cluster_down may end jobs, and they cannot be listed: no answer")
    ]


def test_a_restart_of_a_node_that_runs_is_a_disruption() -> None:
    hostvars = all_kept(
        worker_0=plan("recreate", "its settings changed, it is running"),
        worker_1=plan("create", "no container"),
    )
    what = "restarting it (its settings changed, it is running) would end grpo-1 (RUNNING), sft-2 (PENDING)"
    assert disruption_findings(NODES, hostvars, JOBS, allowed=False) == [finding("worker-0", what)]
    assert disruption_findings(NODES, hostvars, JOBS, allowed=True) == [finding("worker-0", what, "warning")]
    assert disruption_findings(NODES, hostvars, NO_JOBS, allowed=False) == []
    assert disruption_findings(NODES, all_kept(), JOBS, allowed=False) == []


def test_a_restart_of_a_node_that_stands_still_is_none() -> None:
    hostvars = all_kept(worker_0=plan("recreate", "its settings changed, it is exited", disrupts=False))
    assert disruption_findings(NODES, hostvars, JOBS, allowed=False) == []


def test_only_the_containers_of_the_cluster_are_its_own() -> None:
    containers = {
        "worker-0": {"labels": {"argus.verl.cluster": "mvp"}},
        "worker-9": {"labels": {"argus.verl.cluster": "mvp", "other": "x"}},
        "prod-0": {"labels": {"argus.verl.cluster": "prod"}},
        "registry": {"labels": {}},
    }
    assert own_containers(containers, "mvp") == ["worker-0", "worker-9"]
    assert own_containers({}, "mvp") == []


# --- The report -------------------------------------------------------------------------------------------------------


def cluster(*verdicts: str, problem: str = "") -> dict[str, Any]:
    rows = [
        [name, "GPU 4", "GPU 4" if verdict == "alive" else "never joined", verdict]
        for name, verdict in zip(NODES, verdicts, strict=True)
    ]
    missing = [row[0] for row in rows if row[3] != "alive"]
    return {"rows": rows, "missing": missing, "complete": not missing and not problem, "problem": problem, "waited": 9}


def test_the_report_of_a_whole_cluster() -> None:
    report = cluster_report(cluster("alive", "alive", "alive"), NODES, all_kept(worker_0=plan("create")), ABOUT)
    assert report == {
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


def test_the_report_of_missing_nodes_shows_the_end_of_their_logs() -> None:
    log = {"stdout_lines": [f"line {number}" for number in range(40)], "stderr_lines": ["wrong token"]}
    hostvars = all_kept(worker_0=plan("create") | {"__ray_node_log": log})
    report = cluster_report(cluster("alive", "missing", "missing"), NODES, hostvars, ABOUT)
    assert report["title"] == "Cluster mvp: 1 of 3 nodes as expected"
    assert report["rows"][1] == ["worker-0", "missing", "GPU 4", "never joined", "cpu", "create"]
    # worker-1 has no log, and is in the table only.
    assert report["text"] == [
        "The last lines of worker-0:",
        *(f"  line {number}" for number in range(40 - LOG_LINES + 1, 40)),
        "  wrong token",
    ]
    assert report["fail_when"] == (
        "The cluster is not whole after 9 s. Mend what the lines above say and run "
        "cluster_up.yml: it starts only what is missing. `docker logs NODE` has more"
    )


def test_the_report_without_a_head() -> None:
    hostvars = all_kept()
    del hostvars["worker-1"]
    seen = cluster("missing", "missing", "missing", problem="it does not answer")
    report = cluster_report(seen, NODES[:2], hostvars, ABOUT)
    assert report["title"] == "Cluster mvp: 0 of 3 nodes as expected"
    assert report["text"] == ["The head: it does not answer"]
    # A node outside this run has neither action nor accelerator.
    assert report["rows"][2] == ["worker-1", "missing", "GPU 4", "never joined", None, None]
    assert report["fail_when"]


def test_a_head_that_stopped_to_answer_is_no_whole_cluster() -> None:
    report = cluster_report(cluster("alive", "alive", "alive", problem="gone"), NODES, all_kept(), ABOUT)
    assert report["text"] == ["The head: gone"]
    assert report["fail_when"]


# --- Variables --------------------------------------------------------------------------------------------------------


def test_public_variables_are_those_of_all_entry_points(tmp_path: Path) -> None:
    for role, entries in {
        "one": {"main": {"options": {"a": {}}}, "down": {"options": {"b": {}}}},
        "two": {"x": {}},
    }.items():
        (tmp_path / role / "meta").mkdir(parents=True)
        (tmp_path / role / "meta" / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": entries}))
    (tmp_path / "three").mkdir()
    assert public_variables(tmp_path) == {"a", "b"}


def test_public_variables_of_the_roles_are_all_of_their_defaults() -> None:
    names = public_variables()
    assert {"cluster_name", "ray_node_gpus", "shared_root", "staging_snapshots", "job_fetch_dir"} <= names
    for defaults in ROLES.glob("*/defaults/main.yml"):
        assert names >= yaml.safe_load(defaults.read_text()).keys()


def test_the_inventory_is_checked_against_the_variables_of_the_roles() -> None:
    hostvars = all_kept()
    groups = {**GROUPS, "machines": ["box"]}
    assert inventory_findings(hostvars, groups) == []
    hostvars["worker-0"]["ray_node_gpuz"] = 4
    assert inventory_findings(hostvars, groups) == [
        {
            "where": "worker-0",
            "what": "variable ray_node_gpuz is not known",
            "todo": 'did you mean "ray_node_gpus"?',
            "severity": "error",
        }
    ]


def test_every_filter_that_the_yaml_uses_is_there() -> None:
    filters = FilterModule().filters()
    assert filters["token_file"]("/var/lib/argus-verl", "mvp") == "/var/lib/argus-verl/mvp/auth_token"
    assert all(map(callable, filters.values()))
