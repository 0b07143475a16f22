"""The filters read Ansible's variables and return plain data; what they decide is tested with module_utils.cluster."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.filter.cluster import (
    FilterModule,
    cluster_containers,
    cluster_report,
    disruption_findings,
    expected_nodes,
    inventory_findings,
    inventory_summary,
    job_findings,
    machine_work,
    node_plan,
    nodes_of_machine,
    public_variables,
    rotation_findings,
    typed,
    validated_hosts,
)
from ansible_collections.argus.verl.plugins.filter.cluster import change_rows as changes
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.nodes import Settings
from samples import HEALTHY, container, gpus, planned

REPO = Path(__file__).resolve().parents[4]
NODES = ["ray-head", "worker-0", "worker-1"]
GROUPS = {"machines": ["box", "other"], "ray": NODES, "head": ["ray-head"], "workers": NODES[1:]}
WHAT_TO_DO = "wait for them or stop them, or pass -e allow_disruption=true"
# The answer of ray_cluster_info, as far as filters read it.
READY = {
    "complete": True,
    "missing": [],
    "rows": [[name, "GPU 4", "GPU 4", "alive"] for name in NODES],
    "waited": 0.0,
    "problem": "",
    "jobs": [],
}
BUSY = READY | {"jobs": [{"submission_id": "grpo-1", "status": "RUNNING"}]}


def node(*arguments: Any, **changed: Any) -> dict[str, Any]:
    """The variables of a planned node."""
    return {"ray_node_machine": "box", "__ray_node_plan": planned(*arguments, **changed).to_json()}


def variables(**others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables of all hosts; nodes are kept unless `others` has other values."""
    hostvars = {"box": {}, "other": {}, **{name: node() for name in NODES}}
    return hostvars | {name.replace("_", "-"): changed for name, changed in others.items()}


def probed(**changed: Any) -> dict[str, Any]:
    """The variables of a probed machine, as Ansible keeps them."""
    machine: Machine = replace(HEALTHY, **{"uid": 0, "gpus": [], **changed})
    return {"__preflight": {"machine": json.loads(json.dumps(machine.to_json()))}}


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
        "pids_limit": 32768,
        "read_only": True,
        "capabilities": [],
        "devices": [],
        "rotate_token": False,
    } | changed


# What -e passes, for settings that are no text.
TEXTS: dict[str, tuple[str, Any]] = {
    "cpus": ("3", 3),
    "gpus": ("2", 2),
    "shm_gib": ("1.5", 1.5),
    "env": ('{"A": "1"}', {"A": "1"}),
    "pids_limit": ("64", 64),
    "read_only": ("no", False),
    "capabilities": ("A,B", ["A", "B"]),
    "devices": ("/dev/a:/dev/a", ["/dev/a:/dev/a"]),
    "rotate_token": ("yes", True),
}


# --- Plans ------------------------------------------------------------------------------------------------------------


def test_plan_of_a_node() -> None:
    images = {"argus-verl-cpu:0.1.0": Image("sha256:1", {})}
    plan = node_plan(settings(), variables(box=probed(images=images)), GROUPS)
    arguments = plan.pop("container")
    assert plan == {
        "accelerator": "cpu",
        "image": "argus-verl-cpu:0.1.0",
        "image_missing": False,
        "user": "61000:61000",
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
            "since": None,
        },
    }
    assert arguments["name"] == "worker-1"
    assert "--num-gpus=4" in arguments["command"]


@pytest.mark.parametrize("name", TEXTS)
def test_settings_of_the_command_line_are_text(name: str) -> None:
    text, value = TEXTS[name]
    assert typed(settings(**{name: text})) == settings(**{name: value})
    assert type(typed(settings(**{name: text}))[name]) is type(value)
    assert typed(settings(**{name: None}))[name] is None
    as_text, as_value = (
        node_plan(settings(**{name: one}), variables(box=probed()), GROUPS)["container"] for one in (text, value)
    )
    assert as_text == as_value


def test_every_setting_that_is_no_text_is_converted() -> None:
    """Those that are not are checked as text, or are mappings that -e can only pass as JSON."""
    no_text = {field.name for field in fields(Settings) if field.type != "str"}
    assert no_text == TEXTS.keys() | {"images", "dashboard_port"}


@pytest.mark.parametrize("value", ["false", "no", "0", "off", False, "False"])
def test_false_is_false(value: object) -> None:
    assert typed(settings(read_only=value, rotate_token=value)) == settings(read_only=False)


def test_plan_of_a_node_with_a_container() -> None:
    labels = node_plan(settings(), variables(box=probed()), GROUPS)["container"]["labels"]
    there = {"worker-1": container(state="exited", labels=labels)}
    plan = node_plan(settings(), variables(box=probed(containers=there)), GROUPS)
    assert (plan["action"], plan["reason"]) == ("start", "container is exited")
    assert plan["started_at"] == "2026-01-12T08:15:30Z"


def test_plan_of_a_node_whose_token_is_rotated() -> None:
    plan = node_plan(settings(rotate_token=True), variables(box=probed(containers={"worker-1": container()})), GROUPS)
    assert (plan["action"], plan["reason"]) == ("recreate", "its token is rotated, it is running")
    assert plan["disrupts"] is True


def test_a_token_is_rotated_on_all_nodes_at_once() -> None:
    hostvars = variables(box=probed(), worker_1={"ray_node_machine": "other"})
    assert rotation_findings(["ray-head", "worker-0"], variables(box=probed()), GROUPS | {"ray": ["ray-head"]}) == []
    (finding,) = rotation_findings(["ray-head", "worker-0", "worker-1"], hostvars, GROUPS)
    assert finding["where"] == "worker-1"
    assert finding["what"] == "is not in this run, and would be cut off by the new token"
    assert finding["severity"] == "error"


def test_plan_of_the_second_of_two_workers_on_a_machine_with_gpus() -> None:
    plan = node_plan(settings(images={"cuda": "verl:1"}), variables(box=probed(gpus=gpus(4))), GROUPS)
    assert plan["image_missing"] is True
    assert plan["container"]["device_requests"][0]["device_ids"] == ["2", "3"]


def test_gpus_of_all_machines_with_workers_decide_on_the_accelerator() -> None:
    hostvars = variables(box=probed(gpus=gpus(4)), other=probed(), worker_1={"ray_node_machine": "other"})
    both = {"cuda": "verl:1", "cpu": "cpu:1"}
    with pytest.raises(AnsibleFilterError, match="worker-1: requests its share of the GPUs, but other has 0"):
        node_plan(settings(images=both), hostvars, GROUPS)
    hostvars["worker-0"] = {"ray_node_machine": "other"}
    assert node_plan(settings(images=both), hostvars, GROUPS)["accelerator"] == "cpu"
    # A machine that is not in this run has no known GPUs.
    hostvars = variables(box=probed(), worker_0={"ray_node_machine": "other"})
    assert node_plan(settings(images=both), hostvars, GROUPS)["accelerator"] == "cpu"


def test_plan_without_a_probed_machine() -> None:
    with pytest.raises(AnsibleFilterError) as error:
        node_plan(settings(), variables(), GROUPS)
    assert "worker-1: its machine box was not probed in this run" in str(error.value)
    assert "--limit 'box,worker-1'" in str(error.value)


def test_plan_that_the_machine_cannot_hold() -> None:
    hostvars = variables(box=probed(gpus=gpus(4)))
    with pytest.raises(AnsibleFilterError, match="worker-1: requests 3 GPUs, but box has 4 for 2 workers"):
        node_plan(settings(gpus=3, images={"cuda": "verl:1"}), hostvars, GROUPS)


def test_changes() -> None:
    left = {"worker-0": container(), "worker-9": container()}
    hostvars = variables(box=probed(containers=left), worker_0=node("create", "no container"))
    assert changes(NODES, hostvars, GROUPS, "mvp") == [
        ["worker-0", "create", "no container"],
        ["worker-9", "none", "no longer in the inventory; `docker rm -fv worker-9` on box removes it"],
    ]


def test_nodes_of_a_machine() -> None:
    hostvars = variables(worker_1={"ray_node_machine": "other"})
    assert nodes_of_machine("box", hostvars, GROUPS) == ["ray-head", "worker-0"]
    assert nodes_of_machine("other", hostvars, GROUPS) == ["worker-1"]
    assert nodes_of_machine("unknown", hostvars, GROUPS) == []


def test_work_of_a_machine() -> None:
    hostvars = variables(worker_0=node("create", user="7:7", image="b", image_missing=True))
    assert machine_work("box", hostvars, GROUPS) == {"user": "7:7", "images": ["b"]}
    assert machine_work("other", hostvars, GROUPS) == {"user": "", "images": []}
    # Nodes that are not in this run (--limit) have no plan.
    without = {name: {"ray_node_machine": "box"} for name in NODES}
    assert machine_work("box", without, GROUPS) == {"user": "", "images": []}


def test_expected_nodes_of_this_run() -> None:
    started = {"container": {"State": {"StartedAt": "1970-01-01T01:01:40.5+01:00"}}}
    hostvars = variables(
        ray_head=node("start") | {"__ray_node_started": started},
        worker_0=node(started_at=None) | {"__ray_node_started": {"skipped": True}},
        worker_1=node() | {"__ray_node_started": {"container": None}},
    )
    expected = expected_nodes(NODES, hostvars)
    assert [entry["since"] for entry in expected] == [100.5, None, 60.123456]
    assert expected[0] == planned().expected.to_json() | {"since": 100.5}
    hostvars["worker-1"] = {"ray_node_machine": "box"}
    assert len(expected_nodes(NODES, hostvars)) == 2


# --- Jobs -------------------------------------------------------------------------------------------------------------


def test_findings_about_jobs() -> None:
    assert job_findings(READY, "mvp", "removing it") == []
    (finding,) = job_findings(BUSY, "mvp", "removing it")
    assert (finding["where"], finding["severity"]) == ("mvp", "error")
    assert (finding["what"], finding["todo"]) == ("removing it would end grpo-1 (RUNNING)", WHAT_TO_DO)


def test_findings_about_disruption() -> None:
    hostvars = variables(worker_0=node("recreate", "new settings"))
    (finding,) = disruption_findings(NODES, hostvars, BUSY, allowed=True)
    assert (finding["where"], finding["severity"]) == ("worker-0", "warning")
    assert finding["what"] == "restarting it (new settings) would end grpo-1 (RUNNING)"
    assert disruption_findings(NODES, variables(), BUSY, allowed=False) == []


def test_containers_of_a_cluster() -> None:
    machine = replace(HEALTHY, containers={"worker-0": container(), "registry": container(None)}).to_json()
    assert cluster_containers(machine, "mvp") == ["worker-0"]


# --- The report -------------------------------------------------------------------------------------------------------


def test_report_of_a_cluster() -> None:
    about = {"cluster": "mvp", "dashboard": "http://127.0.0.1:8265 on box"}
    report = cluster_report(READY, NODES, variables(), about)
    assert report["title"] == "Cluster mvp: 3 of 3 nodes as expected"
    assert report["rows"][0] == ["ray-head", "alive", "GPU 4", "cpu", "keep"]
    assert (report["text"], report["fail_when"]) == (["Dashboard: http://127.0.0.1:8265 on box"], "")

    log = {"stdout_lines": ["started"], "stderr_lines": ["wrong token"]}
    hostvars = variables(worker_0=node() | {"__ray_node_log": log})
    del hostvars["worker-1"]
    rows = [*READY["rows"][:1], *([name, "GPU 4", "dead", "missing"] for name in NODES[1:])]
    broken = READY | {"complete": False, "missing": NODES[1:], "rows": rows}
    report = cluster_report(broken, NODES[:2], hostvars, about)
    assert report["text"] == ["The last lines of worker-0:", "  started", "  wrong token"]
    assert report["rows"][2] == ["worker-1", "missing", "GPU 4", "dead", None, None]
    assert report["fail_when"].startswith("The cluster is not ready.")


# --- Variables --------------------------------------------------------------------------------------------------------


def test_public_variables_are_those_of_all_entry_points(tmp_path: Path) -> None:
    for role, entries in {
        "one": {"main": {"options": {"a": {}}}, "down": {"options": {"b": {"default": 7}}}},
        "two": {"x": {}},
    }.items():
        (tmp_path / role / "meta").mkdir(parents=True)
        (tmp_path / role / "meta" / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": entries}))
    (tmp_path / "three").mkdir()
    assert public_variables(tmp_path) == {"a": None, "b": 7}


def test_public_variables_include_all_defaults_of_the_roles() -> None:
    names = public_variables().keys()
    assert {"cluster_name", "ray_node_gpus", "shared_root", "staging_snapshots", "job_fetch_dir"} <= names
    for defaults in (REPO / "roles").glob("*/defaults/main.yml"):
        assert names >= yaml.safe_load(defaults.read_text()).keys()


def test_inventory_is_checked_against_the_variables_of_the_roles() -> None:
    hostvars = variables()
    groups = {**GROUPS, "machines": ["box"]}
    assert inventory_findings(hostvars, groups) == []
    hostvars["worker-0"]["ray_node_gpuz"] = 4
    (finding,) = inventory_findings(hostvars, groups)
    assert (finding["where"], finding["severity"]) == ("worker-0", "error")
    assert finding["what"] == "variable ray_node_gpuz is unknown"
    assert finding["todo"] == 'did you mean "ray_node_gpus"?'


@pytest.mark.parametrize("name", ["tags", "retries", "model", "set", "submission_id", "jobspec"])
def test_variables_of_the_command_line_are_known(name: str) -> None:
    """`tags` is almost `tag`, a variable of status.yml."""
    hostvars = variables()
    for host in hostvars:
        hostvars[host][name] = "x"
    assert inventory_findings(hostvars, {**GROUPS, "machines": ["box"]}) == []


def test_results_of_earlier_plays_are_not_misspelt_variables() -> None:
    """One run may have several playbooks, as `make demo` has."""
    hostvars = variables()
    hostvars["worker-0"] |= {"__staging_models": {}, "__ray_node_gpus": 4, "_cluster_nam": "x"}
    assert inventory_findings(hostvars, {**GROUPS, "machines": ["box"]}) == []


def test_an_unknown_variable_of_the_command_line_is_found_once() -> None:
    hostvars = variables()
    for host in hostvars:
        hostvars[host]["hared_root"] = "/x"
    (finding,) = inventory_findings(hostvars, {**GROUPS, "machines": ["box"]})
    assert (finding["where"], finding["todo"]) == ("all hosts", 'did you mean "shared_root"?')


def test_misspelt_prefixes_are_recognized() -> None:
    """Also of variables of the roles that are not those of the cluster."""
    names = {"stagging_models": "staging_models", "jobs_secrets": "job_secrets", "resume_form": "resume_from"}
    hostvars = variables(worker_0={"ray_node_machine": "box", **dict.fromkeys(names, 1)})
    found = inventory_findings(hostvars, {**GROUPS, "machines": ["box"]})
    assert [finding["todo"] for finding in found] == [f'did you mean "{name}"?' for name in names.values()]


def test_run_is_checked_with_the_inventory() -> None:
    groups = {**GROUPS, "machines": ["box"]}
    found = inventory_findings(variables(), groups, ["worker-0"], ["head"], ["/nowhere/hosts.yml"])
    assert [finding["where"] for finding in found] == ["group head", "/nowhere/hosts.yml"]


def test_names_that_ansible_ignores_are_no_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobspecs").mkdir()
    groups = {**GROUPS, "machines": ["box"]}
    monkeypatch.setattr("ansible.constants.INVENTORY_IGNORE_PATTERNS", [])
    assert [one["severity"] for one in inventory_findings(variables(), groups, sources=[str(tmp_path)])] == ["warning"]
    monkeypatch.setattr("ansible.constants.INVENTORY_IGNORE_PATTERNS", ["jobspecs"])
    assert inventory_findings(variables(), groups, sources=[str(tmp_path)]) == []


def test_summary_has_the_default_name_of_the_role() -> None:
    assert inventory_summary(variables(), GROUPS) == "Inventory fine: cluster mvp, 1 head, 2 workers"


def test_inventory_without_hosts_is_refused() -> None:
    """Ansible would skip all plays, and succeed."""
    assert validated_hosts({"all": ["box"]}, ["x"]) == "all"
    with pytest.raises(AnsibleFilterError, match=r"The inventory /a, /b has no hosts: pass an inventory that exists"):
        validated_hosts({"all": []}, ["/a", "/b"])


def test_every_filter_is_documented() -> None:
    filters = FilterModule().filters()
    assert filters["token_file"]("/var/lib/argus-verl", "mvp") == "/var/lib/argus-verl/mvp/auth_token"
    for name in filters:
        documented = yaml.safe_load((REPO / "plugins" / "filter" / f"{name}.yml").read_text())
        assert documented["DOCUMENTATION"]["name"] == name
