"""The plan of a cluster from Ansible's variables, and what is wrong with an inventory before any host is touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.argus.verl.plugins.action.cluster_plan import (
    probed_machines,
    shortage_or_rotation_findings,
    unreached_findings,
)
from ansible_collections.argus.verl.plugins.action.inventory_check import inventory_findings, nodes_without_interpreter
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import INPUTS_LABEL, Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.plugin_utils.plan.cluster_plan import Planner
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import node_variables, public_variables
from samples import HEALTHY, PROCESS_HOST, container, gpus, machine

NODES = ["ray-head", "worker-0", "worker-1"]
GROUPS = {"ray": NODES, "head": ["ray-head"], "workers": NODES[1:]}
BOX = {"ray_node_machine": "box"}
OTHER = {"ray_node_machine": "other"}
# What the role cluster derives from other variables.
RUN_VALUES = {
    "cluster_network": "mvp-ray",
    "cluster_dashboard_port": 8265,
    "cluster_state_dir": "/var/lib/argus-verl",
    "shared_root_source": "/private",
    "cluster_images": {"cpu": "argus-verl-cpu:0.1.0"},
}
PROCESS = {"ray_node_runtime": "process", "ray_node_python": "/opt/verl/bin/python3", "cluster_network": "host"}
PROGRAM = "argus-1.zip"


def probed(**changed: Any) -> dict[str, Any]:
    """The variables of a host that was probed, as Ansible keeps them."""
    host: Machine = replace(HEALTHY, **{"uid": 0, "gpus": [], "program": PROGRAM, **changed})
    return {"__preflight": {"machine": json.loads(json.dumps(host.to_json()))}}


def variables(**changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables of three nodes on one machine, which the head represents."""
    return {name: {**BOX, **changed.get(name.replace("-", "_"), {})} for name in NODES}


def planner(hostvars: dict[str, Any], run: list[str] = NODES, **changed: Any) -> Planner:
    typed, problems = node_variables(NODES, hostvars, RUN_VALUES)
    assert not problems
    return Planner(
        variables=typed,
        heads=GROUPS["head"],
        workers=GROUPS["workers"],
        run_nodes=run,
        machines=probed_machines(GROUPS, hostvars, changed.get("derived", {}), changed.get("excludes_failed", True)),
        builds=changed.get("builds", {}),
        program=PROGRAM,
    )


def plan(hostvars: dict[str, Any], run: list[str] = NODES, **changed: Any) -> dict[str, Any]:
    return planner(hostvars, run, **changed).plan().to_json()


def worker(hostvars: dict[str, Any], name: str = "worker-1", **changed: Any) -> dict[str, Any]:
    """The plan of a worker."""
    return dict(plan(hostvars, **changed)["nodes"][name])


# --- Variables --------------------------------------------------------------------------------------------------------


# What -e passes, for settings that are no text.
TEXTS: dict[str, tuple[str, Any]] = {
    "ray_node_gpus": ("2", 2),
    "ray_node_shm_gib": ("1.5", 1.5),
    "ray_node_env": ('{"A": "1"}', {"A": "1"}),
    "ray_node_groups": ("44,render", ["44", "render"]),
    "ray_node_read_only": ("no", False),
    "cluster_ends_at": ("1000000", 1000000.0),
}


def test_settings_of_the_command_line_are_text() -> None:
    invalid = {node: {"ray_node_gpus": "x"} for node in ("a", "b")} | {"c": {"ray_node_accelerator": "mi"}}
    assert [finding.where for finding in node_variables(invalid, invalid, {})[1]] == ["a, b", "c"]
    for name, (text, value) in TEXTS.items():
        typed, _problems = node_variables(["worker-1"], {"worker-1": {name: text}}, {})
        assert (typed["worker-1"][name], type(typed["worker-1"][name])) == (value, type(value))


# --- Nodes ------------------------------------------------------------------------------------------------------------


def test_plan_of_a_node() -> None:
    node = worker(variables(ray_head=probed(images={"argus-verl-cpu:0.1.0": Image("sha256:1", {})})))
    fields = {"action": "create", "disrupts": False, "absent": "", "image": "argus-verl-cpu:0.1.0"}
    fields |= {"image_missing": False, "user": "61000:61000", "host": "ray-head", "process": {}, "podman": {}}
    assert fields.items() <= node.items() and node["container"]["name"] == "worker-1"
    expected = {"name": "worker-1", "head": False, "cpus": 48, "gpus": 4, "resources": {"worker_node": 100}}
    assert node["expected"] == {**expected, "since": None, "absent": ""}
    images = {"argus-verl-cpu:0.1.0": Image("sha256:1", {INPUTS_LABEL: "old"})}
    for inputs, missing in (("new", True), ("old", False)):
        builds = {"argus-verl-cpu:0.1.0": {"inputs": inputs}, "cuda:1": {"inputs": "x"}}
        assert worker(variables(ray_head=probed(images=images)), builds=builds)["image_missing"] is missing


def test_values_of_a_play_and_choices() -> None:
    # YAML reads some choices as booleans, and values of the play are for nodes that do not set them.
    hostvars = {"a": {"ray_node_rdma": True}, "b": {"ray_node_gpus": 1}}
    typed, problems = node_variables(hostvars, hostvars, {"ray_node_gpus": 4})
    assert (typed["a"]["ray_node_rdma"], problems) == ("true", [])
    assert [typed[node]["ray_node_gpus"] for node in ("a", "b")] == [4, 1]


def test_gpus_of_all_machines_with_workers_decide_on_the_accelerator() -> None:
    both = {"cluster_images": {"cuda": "verl:1", "cpu": "cpu:1"}}
    box = {**probed(gpus=gpus(4)), **both}
    one = variables(ray_head=box, worker_0=both, worker_1={**OTHER, **both, **probed()})
    assert worker(one)["absent"].startswith("requests its share of the GPUs, but other")
    other = variables(ray_head=box, worker_0={**OTHER, **both, **probed()}, worker_1={**OTHER, **both})
    assert worker(other)["accelerator"] == "cpu"
    rocm = probed()
    rocm["__preflight"]["machine"]["rocm_gpus"] = ["/dev/dri/renderD128", "/dev/dri/renderD136"]
    assert "has no image for the accelerator 'rocm'" in worker(variables(ray_head=rocm))["absent"]


FAILED = {"failed": True, "msg": "no space"}
SILENT = {"unreachable": True, "msg": "no route"}
ERROR = {"where": "box", "problem": "7 GPUs", "remedy": "x", "severity": "error"}


@pytest.mark.parametrize(
    ("box", "absent"),
    [
        ({}, "was not probed in this run"),
        ({"__preflight": SILENT}, "does not answer: no route"),
        ({"__ray_node_prepared": FAILED}, "no space"),
        ({"__ray_node_prepared": SILENT}, "does not answer: no route"),
        ({"__ray_image_failed": {**FAILED, "images": ["verl:1"]}}, "the image verl:1: no space"),
        ({"__ray_node_prepared": {"changed": True}}, ""),
        ({"findings": [ERROR]}, "7 GPUs"),
        ({"findings": [ERROR | {"severity": "warning"}]}, ""),
    ],
)
def test_plan_on_a_machine_with_errors(box: dict[str, Any], absent: str) -> None:
    hostvars = probed() if box else {}
    hostvars |= {name: value for name, value in box.items() if name != "findings"}
    if "findings" in box:
        hostvars["__preflight"]["findings"] = box["findings"]
        assert worker(variables(ray_head=hostvars), excludes_failed=False)["action"] == "create"
    node = worker(variables(ray_head=hostvars))
    assert (node["absent"], node["action"]) == (f"its machine box: {absent}", "none") if absent else ("", "create")
    unreached = unreached_findings(planner(variables(ray_head=hostvars)).plan().machines.values())
    is_silent = box.get("__preflight") == SILENT or not box
    assert [(finding.where, finding.severity) for finding in unreached] == [("box", "error")] * is_silent


def missing_nodes(hostvars: dict[str, Any], run: list[str] = NODES) -> list[str]:
    chosen = planner(hostvars, run)
    return [finding.where for finding in shortage_or_rotation_findings(chosen.plan(), chosen, "repair it")]


def test_a_run_without_enough_workers_stops() -> None:
    # A token is rotated on all nodes at once.
    rotated = {key: {"rotate_token": True} for key in ("worker_0", "worker_1")}
    hostvars = variables(ray_head={**probed(containers={"worker-1": container()}), "rotate_token": True}, **rotated)
    assert plan(hostvars)["disrupts"] and missing_nodes(hostvars) == []
    assert missing_nodes(hostvars, NODES[:2]) == ["worker-1"]
    hostvars = variables(ray_head=probed(), worker_1={**OTHER, "__preflight": SILENT})
    assert missing_nodes(hostvars) == ["worker-1"]
    # With --limit, only the nodes of the run count.
    assert missing_nodes(hostvars, NODES[:2]) == []
    hostvars["ray-head"]["cluster_min_workers"] = "1"
    assert missing_nodes(hostvars) == []
    hostvars = variables(ray_head={"__preflight": SILENT, "cluster_min_workers": 0})
    assert set(missing_nodes(hostvars)) == set(NODES)


# --- Machines ---------------------------------------------------------------------------------------------------------


def test_machines_and_their_nodes() -> None:
    both = {"ray-head": container(), "worker-0": container(), "worker-7": container()}
    whole = plan(variables(ray_head=probed(containers=both), worker_1={**OTHER, **probed(uid=7, gid=8)}))
    assert whole["prepares"] and whole["starts"] and whole["head_answers"] and whole["head_runs"]
    assert {host: (entry["name"], entry["nodes"], entry["user"]) for host, entry in whole["machines"].items()} == {
        "ray-head": ("box", NODES[:2], "61000:61000"),
        "worker-1": ("other", ["worker-1"], "7:8"),
    }
    box = whole["machines"]["ray-head"]
    assert (box["present"], box["surplus"]) == (["ray-head", "worker-0", "worker-7"], ["worker-7"])
    assert ["worker-7", "none"] in [row[:2] for row in whole["changes"]]
    # With --limit, a machine is represented by a node of the run.
    assert list(plan(variables(worker_0=probed()), ["worker-0"])["machines"]) == ["worker-0"]
    for changed in ({"cluster": "other"}, {"cluster": "mvp", "state": "exited"}):
        assert not plan(variables(ray_head=probed(containers={"ray-head": container(**changed)})))["head_runs"]
    silent = plan(variables(ray_head={"__preflight": SILENT}))
    assert (silent["head_answers"], silent["head_runs"]) == (False, False)


def test_a_cluster_that_runs_as_planned_needs_nothing_but_a_new_program() -> None:
    nodes = plan(variables(ray_head=probed()))["nodes"]
    containers = {name: container(labels=node["container"]["labels"]) for name, node in nodes.items()}
    whole = plan(variables(ray_head=probed(containers=containers)))
    assert (whole["prepares"], whole["starts"], whole["disrupts"], whole["changes"]) == (False, False, False, [])
    outdated = plan(variables(ray_head=probed(containers=containers, program="argus-0.zip")))
    assert (outdated["prepares"], outdated["starts"]) == (True, False)


# --- Nodes without a container ----------------------------------------------------------------------------------------


def process_host(**changes: Any) -> dict[str, Any]:
    """The variables of a node without a container, whose host was probed."""
    host = machine(process=replace(PROCESS_HOST, **changes), program=PROGRAM).to_json()
    return {**PROCESS, "__preflight": {"machine": host}}


def processes() -> dict[str, Any]:
    return {
        "ray-head": process_host(address="10.0.0.20"),
        "worker-0": process_host(),
        "worker-1": process_host(address="10.0.0.22"),
    }


def test_plan_of_a_process_takes_addresses_from_the_hosts() -> None:
    hostvars = processes()
    command = worker(hostvars, "worker-0")["process"]["command"]
    assert {"--address=10.0.0.20:20000", "--node-ip-address=10.0.0.21", "--node-manager-port=21010"} <= set(command)
    # An address of the inventory comes first.
    hostvars["ray-head"]["ray_node_address"] = "10.1.0.20"
    assert "--address=10.1.0.20:20000" in worker(hostvars, "worker-0")["process"]["command"]
    # With --limit the head was not probed.
    hostvars["ray-head"] = {**PROCESS, "ansible_host": "10.2.0.20"}
    assert "--address=10.2.0.20:20000" in worker(hostvars, "worker-0")["process"]["command"]
    hostvars["ray-head"]["ansible_host"] = "127.0.0.1"
    absent = worker(hostvars, "worker-0")["absent"]
    assert absent.startswith("the head's address is not known, as in a run without its")
    hostvars["ray-head"]["ansible_host"] = "10.2.0.20"
    hostvars["worker-0"] = process_host(address="")
    assert worker(hostvars, "worker-0")["absent"].startswith("its address is not known")


def test_the_end_of_the_machines_is_known_to_a_node_but_restarts_none() -> None:
    hostvars = processes()
    before = worker(hostvars, "worker-0")["process"]
    # As -e passes it.
    hostvars["worker-0"] |= {"cluster_ends_at": "1000000", "cluster_stop_minutes": "0.5"}
    after = worker(hostvars, "worker-0")["process"]
    ending = ("ARGUS_VERL_STOP_AT", "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP")
    assert after["environment"] == {**before["environment"], **dict.fromkeys(ending, "999970")}
    assert after["specification"] == before["specification"]


def test_processes_that_left_the_inventory() -> None:
    hostvars = processes()
    hostvars["worker-0"] = process_host(neighbours=["worker-1", "worker-7"])
    whole = plan(hostvars)
    machine = whole["machines"]["worker-0"]
    assert machine["surplus"] == ["/home/ml/.local/state/argus-verl/mvp/nodes/worker-7"]
    assert machine["sessions"].startswith("/tmp/argus-verl-")
    (row,) = [row for row in whole["changes"] if row[0] == "worker-7"]
    assert row[1] == "none" and "drain.yml -e node=worker-7" in row[2]
    # The paths of its sockets would be too long.
    hostvars["worker-0"]["ray_node_env"] = {"RAY_TMPDIR": "/" + "x" * 40}
    assert worker(hostvars, "worker-0")["absent"]
    assert plan(hostvars)["machines"]["worker-0"]["sessions"] == ""


REPO = Path(__file__).resolve().parents[4]


def test_public_variables_include_all_defaults_of_the_roles() -> None:
    names = public_variables().keys()
    assert {"cluster_name", "ray_node_gpus", "shared_root", "staging_snapshots", "artifacts_dir"} <= names
    for defaults in (REPO / "roles").glob("*/defaults/main.yml"):
        assert names >= yaml.safe_load(defaults.read_text()).keys()


def test_an_unknown_variable_of_the_command_line_is_found_once() -> None:
    hostvars = variables()
    # Variables of the command line are known, and results of earlier playbooks of the run are not checked.
    names = ("tags", "retries", "model", "set", "submission_id", "jobspec", "__staging_models", "_cluster_nam")
    for host in hostvars:
        hostvars[host] |= dict.fromkeys(names, "x")
    assert inventory_findings(hostvars, GROUPS) == []
    for host in hostvars:
        hostvars[host]["shared_roots"] = "/x"
    (finding,) = inventory_findings(hostvars, GROUPS)
    assert finding.where == "all hosts" and "shared_root" in finding.remedy
    findings = inventory_findings(variables(), GROUPS, ["worker-0"], ["head"], ["/nowhere/hosts.yml"])
    assert [finding.where for finding in findings] == ["group head", "/nowhere/hosts.yml"]


def test_variables_of_the_inventory_of_slurm_are_known() -> None:
    hostvars = variables(worker_0=PROCESS, worker_1={**PROCESS, "ansible_python_interpreter": "/usr/bin/python3"})
    assert nodes_without_interpreter(hostvars, GROUPS) == ["worker-0"]
    settings = {**BOX, "slurm_node": "gpu_0", "slurm_memory_mib": 8000}
    assert inventory_findings(variables(worker_0=settings | {"slurm_nodes": 2}), GROUPS) == []
    (finding,) = inventory_findings(variables(worker_0=settings | {"slurm_memroy": "8G"}), GROUPS)
    assert "slurm_memroy" in finding.problem and "slurm_memory" in finding.remedy
