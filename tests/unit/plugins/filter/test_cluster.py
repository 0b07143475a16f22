"""The filters read Ansible's variables and return plain data; what they decide is tested with module_utils.cluster."""

from __future__ import annotations

import json
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.filter.cluster import FilterModule
from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import ExpectedNode, membership
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.images import INPUTS_LABEL
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.nodes import Settings
from ansible_collections.argus.verl.plugins.plugin_utils.filters.cluster import change_rows as changes
from ansible_collections.argus.verl.plugins.plugin_utils.filters.cluster import (
    cluster_containers,
    cluster_report,
    disruption_findings,
    expected_nodes,
    job_findings,
    left_processes,
    machine_work,
    node_plan,
    presence,
    rotation_findings,
    sessions_directory,
    started_at,
    survey,
    typed,
)
from ansible_collections.argus.verl.plugins.plugin_utils.filters.inventory import (
    inventory_findings,
    inventory_summary,
    process_nodes,
    public_variables,
    validated_hosts,
)
from samples import HEALTHY, PROCESS_HOST, PROCESS_SETTINGS, container, gpus, machine, planned

REPO = Path(__file__).resolve().parents[4]
NODES = ["ray-head", "worker-0", "worker-1"]
GROUPS = {"ray": NODES, "head": ["ray-head"], "workers": NODES[1:]}
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
    """The variables of a planned node, whose machine the head represents."""
    return {"ray_node_machine": "box", "__ray_node_plan": planned(*arguments, **{"host": NODES[0]} | changed).to_json()}


def variables(**others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables of all hosts; nodes are kept unless `others` has other values.

    Those of the machines box and other are on the first node of each.
    """
    hostvars = {name: node() for name in NODES}
    machines = {name: others.pop(name) for name in ("box", "other") if name in others}
    hostvars |= {name.replace("_", "-"): changed for name, changed in others.items()}
    for where, facts in machines.items():
        first = next(name for name in NODES if hostvars[name].get("ray_node_machine") == where)
        hostvars[first] = {**hostvars[first], **facts}
    return hostvars


def probed(**changed: Any) -> dict[str, Any]:
    """The variables of a probed machine, as Ansible keeps them."""
    machine: Machine = replace(HEALTHY, **{"uid": 0, "gpus": [], **changed})
    return {"__preflight": {"machine": json.loads(json.dumps(machine.to_json()))}}


def plan_of(own: dict[str, Any], hostvars: dict[str, Any]) -> dict[str, Any]:
    """The plan of a node, as the role asks for it."""
    return node_plan(own, hostvars, survey(GROUPS, hostvars, NODES), True)


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
        "port_base": 20000,
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
        "rdma": "auto",
        "groups": [],
        "ulimits": [],
        "rotate_token": False,
    } | changed


# What -e passes, for settings that are no text.
TEXTS: dict[str, tuple[str, Any]] = {
    "cpus": ("3", 3),
    "gpus": ("2", 2),
    "shm_gib": ("1.5", 1.5),
    "env": ('{"A": "1"}', {"A": "1"}),
    "port_base": ("21000", 21000),
    "pids_limit": ("64", 64),
    "groups": ("44,render", ["44", "render"]),
    "ulimits": ("nofile:1:2", ["nofile:1:2"]),
    "read_only": ("no", False),
    "capabilities": ("A,B", ["A", "B"]),
    "devices": ("/dev/a:/dev/a", ["/dev/a:/dev/a"]),
    "rotate_token": ("yes", True),
}


# --- Plans ------------------------------------------------------------------------------------------------------------


def test_plan_of_a_node() -> None:
    images = {"argus-verl-cpu:0.1.0": Image("sha256:1", {})}
    plan = plan_of(settings(), variables(box=probed(images=images)))
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
        "state": "",
        "process": {},
        "podman": {},
        "host": "ray-head",
        "expected": {
            "name": "worker-1",
            "head": False,
            "cpus": 48,
            "gpus": 4,
            "resources": {"worker_node": 100},
            "since": None,
            "absent": "",
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
        plan_of(settings(**{name: one}), variables(box=probed()))["container"] for one in (text, value)
    )
    assert as_text == as_value


def test_every_setting_that_is_no_text_is_converted() -> None:
    """Those that are not are checked as text, or are mappings that -e can only pass as JSON."""
    no_text = {field.name for field in fields(Settings) if field.type != "str"}
    assert no_text == TEXTS.keys() | {"images", "dashboard_port", "derived_env"}


@pytest.mark.parametrize(("given", "value"), [(True, "true"), (False, "false"), ("Auto", "auto"), ("auto", "auto")])
def test_choice_that_yaml_reads_as_a_boolean(given: object, value: str) -> None:
    assert typed(settings(rdma=given))["rdma"] == value


@pytest.mark.parametrize("value", ["false", "no", "0", "off", False, "False"])
def test_false_is_false(value: object) -> None:
    assert typed(settings(read_only=value, rotate_token=value)) == settings(read_only=False)


def test_plan_of_a_node_with_a_container() -> None:
    labels = plan_of(settings(), variables(box=probed()))["container"]["labels"]
    there = {"worker-1": container(state="exited", labels=labels)}
    plan = plan_of(settings(), variables(box=probed(containers=there)))
    assert (plan["action"], plan["reason"]) == ("start", "container is exited")
    assert plan["started_at"] == "2026-01-12T08:15:30Z"


def test_plan_of_a_node_whose_token_is_rotated() -> None:
    plan = plan_of(settings(rotate_token=True), variables(box=probed(containers={"worker-1": container()})))
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
    plan = plan_of(settings(images={"cuda": "verl:1"}), variables(box=probed(gpus=gpus(4))))
    assert plan["image_missing"] is True
    assert plan["container"]["device_requests"][0]["device_ids"] == ["2", "3"]


def test_gpus_of_all_machines_with_workers_decide_on_the_accelerator() -> None:
    hostvars = variables(box=probed(gpus=gpus(4)), other=probed(), worker_1={"ray_node_machine": "other"})
    both = {"cuda": "verl:1", "cpu": "cpu:1"}
    assert plan_of(settings(images=both), hostvars)["absent"].startswith("requests its share of the GPUs, but other")
    there = {"ray_node_machine": "other"}
    hostvars = variables(box=probed(gpus=gpus(4)), worker_0=there, worker_1=there, other=probed())
    assert plan_of(settings(images=both), hostvars)["accelerator"] == "cpu"
    # A machine that is not in this run has no known GPUs.
    hostvars = variables(box=probed(), worker_0={"ray_node_machine": "other"})
    assert plan_of(settings(images=both), hostvars)["accelerator"] == "cpu"


def test_plan_of_a_node_whose_image_is_built_from_other_inputs() -> None:
    there = {"cpu:1": Image("sha256:1", {INPUTS_LABEL: "old"})}

    def planned_with(inputs: str) -> dict[str, Any]:
        hostvars = variables(box=probed(images=there))
        hostvars["ray-head"]["__preflight_image_builds"] = {"cpu:1": {"inputs": inputs}, "cuda:1": {"inputs": "x"}}
        return plan_of(settings(images={"cpu": "cpu:1", "cuda": "cuda:1"}), hostvars)

    assert planned_with("new")["image_missing"] is True
    assert planned_with("old")["image_missing"] is False


def test_plan_without_a_probed_machine() -> None:
    reason = "its machine box: was not probed in this run"
    assert plan_of(settings(), variables()) == {"absent": reason, "action": "none", "disrupts": False}


def test_plan_on_a_machine_with_errors() -> None:
    error = {"where": "box", "what": "7 GPUs", "todo": "x", "severity": "error"}
    box = probed()
    box["__preflight"]["findings"] = [error]
    hostvars = variables(box=box)
    assert plan_of(settings(), hostvars)["absent"] == "its machine box: 7 GPUs"
    assert node_plan(settings(), hostvars, survey(GROUPS, hostvars, NODES), False)["action"] == "create"
    box["__preflight"]["findings"] = [error | {"severity": "warning"}]
    assert plan_of(settings(), hostvars)["action"] == "create"


def test_plan_that_the_machine_cannot_hold() -> None:
    hostvars = variables(box=probed(gpus=gpus(4)))
    plan = plan_of(settings(gpus=3, images={"cuda": "verl:1"}), hostvars)
    assert plan["absent"].startswith("requests 3 GPUs, but box has 4 for 2 workers")


def test_changes() -> None:
    left = {"worker-0": container(), "worker-9": container()}
    hostvars = variables(box=probed(containers=left), worker_0=node("create", "no container"))
    assert changes(NODES, hostvars, GROUPS, "mvp") == [
        ["worker-0", "create", "no container"],
        ["worker-9", "none", "no longer in the inventory; `drain.yml -e node=worker-9` takes it out"],
    ]


def test_survey() -> None:
    hostvars = variables(box=probed(gpus=gpus(2)), other=probed(gpus=gpus(3)), worker_1={"ray_node_machine": "other"})
    assert survey(GROUPS, hostvars, NODES) == {
        "hosts": {"ray-head": "ray-head", "worker-0": "ray-head", "worker-1": "worker-1"},
        "workers": {"ray-head": ["worker-0"], "worker-1": ["worker-1"]},
        "gpus": 3,
        "rocm_gpus": 0,
        "head": "ray-head",
    }
    # With --limit, a machine is represented by a node of the run.
    assert survey(GROUPS, hostvars, ["worker-0"])["hosts"]["ray-head"] == "worker-0"
    gpu = {"index": 0, "gfx": "gfx942", "memory_mib": 196608, "render": "/dev/dri/renderD128"}
    other = probed(gpus=[])
    other["__preflight"]["machine"]["rocm_gpus"] = [gpu, gpu]
    hostvars = variables(box=probed(), other=other, worker_1={"ray_node_machine": "other"})
    assert survey(GROUPS, hostvars, NODES)["rocm_gpus"] == 2


def test_work_of_a_machine() -> None:
    hostvars = variables(worker_0=node("create", user="7:7", image="b", image_missing=True))
    assert machine_work(NODES, hostvars) == {"user": "7:7"}
    assert machine_work([], hostvars) == {"user": ""}
    # Nodes that are not in this run (--limit), or cannot be planned, have no plan.
    without: dict[str, dict[str, Any]] = {name: {"ray_node_machine": "box"} for name in NODES}
    assert machine_work(NODES, without) == {"user": ""}
    without["worker-0"]["__ray_node_plan"] = plan_of(settings(), variables())
    assert machine_work(NODES, without) == {"user": ""}


def expected(hostvars: dict[str, Any], **options: Any) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in expected_nodes(NODES, hostvars, GROUPS, **options)}


def named(name: str, *arguments: Any, **changed: Any) -> dict[str, Any]:
    return node(*arguments, expected=replace(planned().expected, name=name, head=name == "ray-head"), **changed)


def test_expected_nodes_of_this_run() -> None:
    started = {"container": {"State": {"StartedAt": "1970-01-01T01:01:40.5+01:00"}}}
    hostvars = variables(
        box=probed(),
        ray_head=named("ray-head", "start") | {"__ray_node_started": started},
        worker_0=named("worker-0", started_at=None) | {"__ray_node_started": {"skipped": True}},
        worker_1=named("worker-1") | {"__ray_node_started": {"container": None}},
    )
    found = expected(hostvars)
    assert [(entry["since"], entry["absent"]) for entry in found.values()] == [(100.5, ""), (None, ""), (60.123456, "")]
    assert found["worker-0"] == planned().expected.to_json()


def test_what_a_machine_knows_of_a_node_counts_before_ray_notices() -> None:
    hostvars = variables(
        box=probed(),
        ray_head=named("ray-head", state="running"),
        worker_0=named("worker-0", "start", state="exited"),
        worker_1=named("worker-1", "create", state=""),
    )
    found = expected(hostvars, checked=False)
    assert [entry["absent"] for entry in found.values()] == ["", "its container is exited", "it has no container"]
    alive = [
        {"node_name": name, "state": "ALIVE", "is_head_node": name == "ray-head", "start_time_ms": 100_000.0}
        | {"resources_total": {"CPU": 48, "GPU": 4, "worker_node": 100}}
        for name in found
    ]
    nodes = [ExpectedNode.from_json(entry) for entry in found.values()]
    assert membership(nodes, alive).missing == ["worker-0", "worker-1"]
    # The engine has started it again meanwhile.
    alive[1]["start_time_ms"] = (time.time() + 5) * 1000
    assert membership(nodes, alive).missing == ["worker-1"]


def test_nodes_that_will_not_come_have_the_reason() -> None:
    failed = {"failed": True, "msg": "no such device"}
    crashed = {"__ray_node_started": {"changed": True}, "__ray_node_inspected": {"stdout": "restarting 1 3"}}
    hostvars = variables(
        box=probed(),
        ray_head=named("ray-head") | {"__ray_node_started": failed},
        worker_0=named("worker-0") | crashed,
        worker_1={"__ray_node_plan": {"absent": "its machine other: does not answer: no route"}},
    )
    assert {name: entry["absent"] for name, entry in expected(hostvars, head_answers=True).items()} == {
        "ray-head": "its container could not be started: no such device",
        "worker-0": "its container ended 3 times, and was started again each time",
        "worker-1": "its machine other: does not answer: no route",
    }
    # A worker may have to wait for its head. A head that ends again and again has no such reason.
    assert expected(hostvars)["worker-0"]["absent"] == ""
    hostvars["ray-head"] = named("ray-head") | crashed | probed()
    assert expected(hostvars)["ray-head"]["absent"].startswith("its container ended 3 times")
    assert expected(hostvars)["ray-head"]["head"] is True


# --- Jobs -------------------------------------------------------------------------------------------------------------


def test_findings_about_jobs() -> None:
    assert job_findings(READY, "mvp", "removing it") == []
    (finding,) = job_findings(BUSY, "mvp", "removing it")
    assert (finding["where"], finding["severity"]) == ("mvp", "error")
    assert (finding["what"], finding["todo"]) == ("removing it would end grpo-1 (RUNNING)", WHAT_TO_DO)


def test_findings_about_disruption() -> None:
    hostvars = variables(worker_0=node("recreate", "new settings"))
    (finding,) = disruption_findings(NODES, hostvars, BUSY, True, {"skipped": True})
    assert (finding["where"], finding["severity"]) == ("worker-0", "warning")
    assert finding["what"] == "restarting it (new settings) would end grpo-1 (RUNNING)"
    assert disruption_findings(NODES, variables(), BUSY, False, {"skipped": True}) == []
    dead = {**BUSY, "jobs": [], "problem": "Connection refused"}
    found = [
        disruption_findings(NODES, hostvars, dead, False, jobs)[0]["severity"]
        for jobs in (
            {"closed": [], "findings": []},
            {"closed": [], "findings": [{"what": "no access"}]},
            {"skipped": True},
        )
    ]
    assert found == ["warning", "error", "error"]


def test_containers_of_a_cluster() -> None:
    machine = replace(HEALTHY, containers={"worker-0": container(), "registry": container(None)}).to_json()
    assert cluster_containers(machine, "mvp") == ["worker-0"]


# --- The report -------------------------------------------------------------------------------------------------------


def test_report_of_a_cluster() -> None:
    about = {"cluster": "mvp", "dashboard": "http://127.0.0.1:8265 on box", "least": None}
    report = cluster_report(READY, NODES, variables(), GROUPS, about)
    assert report["title"] == "Cluster mvp: 3 of 3 nodes as expected"
    assert report["rows"][0] == ["ray-head", "alive", "GPU 4", "cpu", "keep"]
    assert (report["text"], report["fail_when"]) == (["Dashboard: http://127.0.0.1:8265 on box"], "")

    log = {"stdout_lines": ["started"], "stderr_lines": ["wrong token"]}
    hostvars = variables(worker_0=node() | {"__ray_node_log": log})
    del hostvars["worker-1"]
    rows = [*READY["rows"][:1], *([name, "GPU 4", "dead", "missing"] for name in NODES[1:])]
    broken = READY | {"complete": False, "missing": NODES[1:], "rows": rows}
    report = cluster_report(broken, NODES[:2], hostvars, GROUPS, about)
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
    assert inventory_findings(hostvars, GROUPS) == []
    hostvars["worker-0"]["ray_node_gpuz"] = 4
    (finding,) = inventory_findings(hostvars, GROUPS)
    assert (finding["where"], finding["severity"]) == ("worker-0", "error")
    assert finding["what"] == "variable ray_node_gpuz is unknown"
    assert finding["todo"] == 'did you mean "ray_node_gpus"?'


@pytest.mark.parametrize("name", ["tags", "retries", "model", "set", "submission_id", "jobspec"])
def test_variables_of_the_command_line_are_known(name: str) -> None:
    """`tags` is almost `tag`, a variable of status.yml."""
    hostvars = variables()
    for host in hostvars:
        hostvars[host][name] = "x"
    assert inventory_findings(hostvars, GROUPS) == []


def test_results_of_earlier_plays_are_not_misspelt_variables() -> None:
    """One run may have several playbooks, as `make demo` has."""
    hostvars = variables()
    hostvars["worker-0"] |= {"__staging_models": {}, "__ray_node_gpus": 4, "_cluster_nam": "x"}
    assert inventory_findings(hostvars, GROUPS) == []


def test_an_unknown_variable_of_the_command_line_is_found_once() -> None:
    hostvars = variables()
    for host in hostvars:
        hostvars[host]["hared_root"] = "/x"
    (finding,) = inventory_findings(hostvars, GROUPS)
    assert (finding["where"], finding["todo"]) == ("all hosts", 'did you mean "shared_root"?')


def test_misspelt_prefixes_are_recognized() -> None:
    """Also of variables of the roles that are not those of the cluster."""
    names = {"stagging_models": "staging_models", "jobs_secrets": "job_secrets", "resume_form": "resume_from"}
    hostvars = variables(worker_0={"ray_node_machine": "box", **dict.fromkeys(names, 1)})
    found = inventory_findings(hostvars, GROUPS)
    assert [finding["todo"] for finding in found] == [f'did you mean "{name}"?' for name in names.values()]


def test_run_is_checked_with_the_inventory() -> None:
    found = inventory_findings(variables(), GROUPS, ["worker-0"], ["head"], ["/nowhere/hosts.yml"])
    assert [finding["where"] for finding in found] == ["group head", "/nowhere/hosts.yml"]


def test_names_that_ansible_ignores_are_no_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobspecs").mkdir()
    monkeypatch.setattr("ansible.constants.INVENTORY_IGNORE_PATTERNS", [])
    assert [one["severity"] for one in inventory_findings(variables(), GROUPS, sources=[str(tmp_path)])] == ["warning"]
    monkeypatch.setattr("ansible.constants.INVENTORY_IGNORE_PATTERNS", ["jobspecs"])
    assert inventory_findings(variables(), GROUPS, sources=[str(tmp_path)]) == []


def test_summary_has_the_default_name_of_the_role() -> None:
    assert inventory_summary(variables(), GROUPS) == "Inventory fine: cluster mvp, 1 head, 2 workers"


def test_inventory_without_hosts_is_a_finding() -> None:
    """Ansible would skip all plays, and succeed: the play that reports this runs on the controller."""
    assert validated_hosts({"all": ["box"]}, ["x"]) == "all"
    assert validated_hosts({"all": []}, ["/absent"]) == "localhost"
    # Before Slurm has given any.
    assert validated_hosts({"all": []}, ["/absent"], True) == "all"
    (finding,) = inventory_findings({}, {"all": []}, sources=["/absent"])
    assert (finding["where"], finding["what"]) == ("/absent", "does not exist")


def test_inventory_without_hosts_and_a_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A play on the controller would be skipped as well."""
    monkeypatch.setattr("ansible.context.CLIARGS", {"subset": "gpu-0"})
    assert validated_hosts({"all": ["box"]}, ["x"]) == "all"
    with pytest.raises(AnsibleFilterError, match=r"^the inventory /absent does not exist: correct the path after -i"):
        validated_hosts({"all": []}, ["/absent"])


def test_every_filter_is_documented() -> None:
    filters = FilterModule().filters()
    assert filters["token_file"]("/var/lib/argus-verl", "mvp") == "/var/lib/argus-verl/mvp/auth_token"
    for name in filters:
        documented = yaml.safe_load((REPO / "plugins" / "filter" / f"{name}.yml").read_text())
        assert documented["DOCUMENTATION"]["name"] == name


# --- Ports, devices and images ----------------------------------------------------------------------------------------


def test_port_of_the_dashboard() -> None:
    given = FilterModule().filters()["dashboard_port"]
    assert (given(20000), given("20000"), given("21000")) == (8265, 8265, 21004)


# --- Nodes without a container ----------------------------------------------------------------------------------------


PROCESS = {"ray_node_runtime": "process", "ray_node_python": "/opt/verl/bin/python3"}


def process_host(**changes: Any) -> dict[str, Any]:
    """The variables of a node without a container, whose host was probed."""
    return {**PROCESS, "__preflight": {"machine": machine(process=replace(PROCESS_HOST, **changes)).to_json()}}


def process_settings(name: str) -> dict[str, Any]:
    chosen = {item.name: getattr(PROCESS_SETTINGS, item.name) for item in fields(Settings)}
    return {**chosen, "name": name, "accelerator": "auto", "address": name, "head_address": "ray-head"}


def plan_of_process(hostvars: dict[str, Any]) -> dict[str, Any]:
    surveyed = survey(GROUPS, hostvars, NODES)
    return node_plan(process_settings("worker-0"), hostvars, surveyed, True)


def processes() -> dict[str, Any]:
    return variables(
        worker_0=process_host(), worker_1=process_host(address="10.0.0.22"), ray_head=process_host(address="10.0.0.20")
    )


def test_plan_of_a_process_takes_addresses_from_the_hosts() -> None:
    hostvars = processes()
    command = plan_of_process(hostvars)["process"]["command"]
    assert {"--address=10.0.0.20:20000", "--node-ip-address=10.0.0.21", "--node-manager-port=21010"} <= set(command)
    # What the inventory says, if it says anything.
    hostvars["ray-head"]["ray_node_address"] = "10.1.0.20"
    assert "--address=10.1.0.20:20000" in plan_of_process(hostvars)["process"]["command"]
    # With --limit the head was not probed.
    hostvars["ray-head"] = {**PROCESS, "ansible_host": "10.2.0.20"}
    assert "--address=10.2.0.20:20000" in plan_of_process(hostvars)["process"]["command"]
    hostvars["ray-head"]["ansible_host"] = "127.0.0.1"
    assert plan_of_process(hostvars)["absent"].startswith("the head's address is not known, as in a run without its")
    hostvars["ray-head"]["ansible_host"] = "10.2.0.20"
    hostvars["worker-0"] = process_host(address="")
    assert plan_of_process(hostvars)["absent"].startswith("its address is not known")


def test_plan_of_a_process_has_the_derived_variables_but_is_not_told_apart_by_them() -> None:
    hostvars = processes()
    before = plan_of_process(hostvars)["process"]
    hostvars["worker-0"]["__preflight_derived"] = {"environment": {"worker-0": {"GLOO_SOCKET_IFNAME": "eth1"}}}
    after = plan_of_process(hostvars)["process"]
    assert after["environment"] == {**before["environment"], "GLOO_SOCKET_IFNAME": "eth1"}
    assert (before["derived"], after["derived"]) == ("", '{"GLOO_SOCKET_IFNAME": "eth1"}')
    assert after["specification"] == before["specification"]


def test_the_end_of_the_machines_is_known_to_a_node_but_restarts_none() -> None:
    hostvars = processes()
    surveyed = survey(GROUPS, hostvars, NODES)

    def plan(**ending: Any) -> dict[str, Any]:
        # As -e passes it.
        return dict(node_plan(process_settings("worker-0") | ending, hostvars, surveyed, True)["process"])

    before, after = plan(), plan(ends_at="1000000", stop_minutes="0.5")
    assert after["environment"] == {
        **before["environment"],
        "ARGUS_VERL_STOP_AT": "999970",
        "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "999970",
    }
    assert after["specification"] == before["specification"]
    assert plan(ends_at=None, stop_minutes=5.0) == before


def test_variables_of_the_inventory_of_slurm_are_known() -> None:
    own = {**node(), "slurm_node": "gpu_0", "slurm_memory_mib": 8000}
    assert inventory_findings(variables(worker_0=own | {"slurm_nodes": 2}), GROUPS) == []
    (finding,) = inventory_findings(variables(worker_0=own | {"slurm_partitoin": "gpu"}), GROUPS)
    assert "slurm_partitoin" in finding["what"] and "slurm_partition" in finding["todo"]


def test_process_that_does_not_come() -> None:
    own = planned("start", process={"directory": "/nodes/worker-0"}).to_json()
    there = {"__ray_node_plan": own, **process_host(), "__ray_node_started": {"changed": True}}
    there["__ray_node_inspected"] = {"node": {"state": "running", "exit_code": 1, "restarts": 2}}
    hostvars = variables(worker_0=there)
    (expected,) = expected_nodes(["worker-0"], hostvars, GROUPS, True, True)
    assert expected["absent"] == "its process ended 2 times, and was started again each time"
    there["__ray_node_inspected"] = {"node": {"state": "stopped", "exit_code": None, "restarts": 0}}
    (expected,) = expected_nodes(["worker-0"], hostvars, GROUPS, True, True)
    assert expected["absent"] == "its process ended with exit code 0"
    there["__ray_node_started"] = {"failed": True, "msg": "Ray was not started"}
    (expected,) = expected_nodes(["worker-0"], hostvars, GROUPS, True, True)
    assert expected["absent"] == "its process could not be started: Ray was not started"


def test_nodes_without_a_python_of_their_own() -> None:
    hostvars = variables(worker_0=PROCESS, worker_1={**PROCESS, "ansible_python_interpreter": "/usr/bin/python3"})
    assert process_nodes(hostvars, GROUPS) == ["worker-0"]


def test_start_of_a_node_from_the_result_of_its_module() -> None:
    assert started_at({"container": {"State": {"StartedAt": "2026-01-01T00:00:00Z"}}}) == "2026-01-01T00:00:00Z"
    assert started_at({"node": {"started_at": 60.5}}) == "1970-01-01T00:01:00.500000+00:00"
    assert started_at({"node": {}}) is started_at({}) is None


def test_processes_that_left_the_inventory() -> None:
    found = process_host(neighbours=["worker-1", "worker-7"])["__preflight"]["machine"]
    assert left_processes(found, NODES) == ["/home/ml/.local/state/argus-verl/mvp/nodes/worker-7"]
    assert left_processes(machine().to_json(), NODES) == []
    hostvars = variables(worker_0=process_host(neighbours=["worker-7"]))
    rows = changes([], hostvars, GROUPS, "mvp")
    assert rows == [["worker-7", "none", "no longer in the inventory; `drain.yml -e node=worker-7` takes it out"]]
    assert left_processes({}, NODES) == []


def test_what_there_is_of_a_cluster() -> None:
    def there(containers: dict[str, Any], **others: Any) -> dict[str, Any]:
        return presence(GROUPS, variables(box=probed(containers=containers), **others), NODES, "mvp")

    both = {"ray-head": container(), "worker-0": container(), "worker-7": container()}
    assert there(both) == {"answers": True, "runs": True, "containers": ["ray-head", "worker-0"]}
    # A container on another machine than that of its node is none of the cluster's.
    elsewhere = there(both, worker_0={"ray_node_machine": "other"})
    assert elsewhere["containers"] == ["ray-head"]
    for changed in ({"cluster": "other"}, {"cluster": "mvp", "state": "exited"}):
        assert not there({"ray-head": container(**changed)})["runs"]
    silent = presence(GROUPS, variables(box={"__preflight": {"unreachable": True}}), NODES, "mvp")
    assert silent == {"answers": False, "runs": False, "containers": []}


def test_sessions_whose_paths_are_too_long() -> None:
    assert sessions_directory("mvp").startswith("/tmp/argus-verl-")
    with pytest.raises(AnsibleFilterError, match="is too long"):
        sessions_directory("mvp", "/" + "x" * 40)
