from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import limit_findings, placement, validate

Inventory = tuple[dict[str, dict[str, Any]], dict[str, list[str]]]
KNOWN = {"cluster_name", "cluster_network", "cluster_state_dir", "shared_root", "shared_root_source"}
KNOWN |= {f"ray_node_{name}" for name in ("address", "cpus", "gpus", "machine", "runtime", "python")}


def one_machine() -> Inventory:
    """Like inventories/dev: three containers on this machine."""
    groups = {"ray": ["ray-head", "worker-0", "worker-1"], "head": ["ray-head"], "workers": ["worker-0", "worker-1"]}
    return {node: {"ansible_connection": "local", "cluster_name": "mvp"} for node in groups["ray"]}, groups


def two_machines() -> Inventory:
    """Like production: a node is a machine, with an address."""
    address = "ray_node_address"
    hostvars = {f"gpu-{last}": {"cluster_network": "host", address: f"10.0.0.{last}"} for last in (1, 2)}
    return hostvars, {"ray": ["gpu-1", "gpu-2"], "head": ["gpu-1"], "workers": ["gpu-2"]}


SSH = {"ansible_host": "10.0.0.1"}


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ({"ansible_connection": "local"}, {"ansible_connection": "local", "ansible_host": "10.0.0.1"}, True),
        (SSH, SSH, True),
        (SSH, {**SSH, "ansible_connection": "ssh"}, True),
        (SSH, {**SSH, "ansible_connection": "argus.verl.ssh"}, False),
        (SSH, {**SSH, "ansible_port": 2222}, False),
        (SSH, {"ansible_host": "10.0.0.2"}, False),
        # By default, Ansible reaches a host at its name.
        ({}, {"ansible_host": "first"}, True),
        ({}, {}, False),
        ({"ray_node_machine": "box"}, {"ray_node_machine": "box", **SSH}, True),
        ({"ray_node_machine": "box", **SSH}, {"ray_node_machine": "other", **SSH}, False),
        ({"ray_node_machine": "localhost"}, {"ansible_connection": "local"}, True),
        # Each has its host for itself, as on a platform.
        ({"ray_node_runtime": "process", **SSH}, {"ray_node_runtime": "process", **SSH}, False),
    ],
)
def test_nodes_share_a_machine(first: dict[str, Any], second: dict[str, Any], together: bool) -> None:
    hostvars = {"first": first, "second": second}
    expected = {"first": ["first", "second"]} if together else {"first": ["first"], "second": ["second"]}
    assert placement(hostvars, hostvars) == expected


# --- Values -----------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "cluster_port_base": (
        [1024, "20000", 63536],
        [1023, 63537, "", "20000 ", -1, True, None, 2e4, "\uff12\uff10\uff10\uff10\uff10"],
    ),
    **dict.fromkeys(("ray_node_gpus", "ray_node_cpus"), ([0, 8, "8", None], [-1, 1.5, "", "all", True])),
    **dict.fromkeys(
        ("shared_root", "shared_root_source", "cluster_state_dir"),
        (["/private"], ["private", "./private", "~/private", "", "/", "//", "/a/../..", "/a\nb", None, 7]),
    ),
    # A directory, a label and a network have it: "" or ".." would be the state of all clusters.
    "cluster_name": (
        ["mvp", "lab-2", "team.a_1", "7", "x" * 63],
        ["", "..", "../mvp", "/", "a b", "-rf", "Mvp", "mvp\n", "x" * 64, "mvp\0", "_x", ".mvp", None, 7, True],
    ),
    "cluster_network": (["mvp-ray"], ["--driver=macvlan"]),
    "ray_node_user": (["61000:100"], ["ray", "1000", "1000:", "-1:0", 1000, None]),
    "cluster_dashboard_port": ([1, "8265", 65535], [0, 65536, "", True, None]),
    "ray_node_rdma": (["auto", True, "false"], ["yes", None, ""]),
    "ray_node_groups": (
        [[], [44, "render"], "44,render", ["4" * 10]],
        [[""], ["a b"], ["-1"], None, 44, ["Render"], ["4" * 11], ["x" * 33]],
    ),
    "ray_node_ulimits": (
        [[], ["nofile:1024:2048", "memlock:-1"], "core:-1:-1"],
        [["nofile"], ["nofile:many"], ["nofile:1:2:3"], ["nofile=1:2"], ["nofile:-2:1"], None, {"nofile": 1}],
    ),
}


def with_value(name: str, value: Any) -> list[Finding]:
    hostvars, groups = one_machine()
    hostvars["worker-0"][name] = value
    return validate(hostvars, groups, KNOWN | set(VALUES))


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    good, bad = VALUES[name]
    assert [value for value in good if with_value(name, value)] == []
    for value in bad:
        (finding,) = with_value(name, value)
        assert (finding.where, finding.problem) == ("worker-0", f"{name} is {value!r}")
        assert finding.remedy


@pytest.mark.parametrize("name", ["Worker-0", "worker_0", "worker.0", "-worker", "worker-", "w" * 64, "w", "a--b", "0"])
def test_names_of_nodes(name: str) -> None:
    hostvars, groups = one_machine()
    hostvars[name] = hostvars.pop("worker-0")
    groups["ray"][1] = groups["workers"][0] = name
    is_valid = name in ("w", "a--b", "0")
    assert [finding.where for finding in validate(hostvars, groups, KNOWN)] == ([] if is_valid else [name])


# --- Groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"head": ["ray-head", "worker-0"], "workers": ["worker-1"]}, ["group head"]),
        ({"head": [], "workers": ["worker-0", "worker-1"]}, ["group head"]),
        ({"workers": []}, ["group workers"]),
        ({"ray": ["ray-head", "worker-0"]}, ["worker-1"]),
    ],
)
def test_a_cluster_has_a_head_and_workers(changed: dict[str, list[str]], expected: list[str]) -> None:
    hostvars, groups = one_machine()
    groups |= changed
    for members in (groups, {name: hosts for name, hosts in groups.items() if hosts}):
        assert [finding.where for finding in validate(hostvars, members, KNOWN)] == expected


# --- Machines and networks --------------------------------------------------------------------------------------------

HOST = {"cluster_network": "host", "ray_node_address": "10.0.0.1"}
TWO = "gpu-1, gpu-2"
SHARED = {"shared_root_source": "/srv/shared"}


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        ({}, {}, ""),
        # An address that others reach.
        *(({}, {"ray_node_address": address}, "gpu-2") for address in ("127.0.0.1", "127.0.1.1", "::1", "gpu-2", "")),
        ({}, {"ray_node_address": None}, "gpu-2"),
        ({}, {"ray_node_address": "fd00::2"}, ""),
        ({}, {"ray_node_address": None, "ansible_host": "10.0.0.2"}, ""),
        ({}, {"ray_node_address": None, "ansible_host": "gpu-2.example.org"}, "gpu-2"),
        # The address of another machine, unless both nodes are on one.
        ({}, {"ray_node_address": "10.0.0.1"}, TWO),
        (HOST | {"ray_node_machine": "gpu-1"}, HOST | {"ray_node_machine": "gpu-1"}, ""),
        # A container network does not span two machines.
        ({"cluster_network": "mvp-ray"}, {"cluster_network": "mvp-ray"}, TWO),
        ({}, {"cluster_network": None}, "gpu-2"),
        # The token, images, and users.
        *(
            ({}, {"cluster_state_dir": place, **SHARED}, "gpu-2")
            for place in ("/srv/shared", "/srv/shared/", "/srv/shared/user/state")
        ),
        ({}, {"cluster_state_dir": "/srv/shared-state", **SHARED}, ""),
        ({}, {"cluster_image_archive": {"url": "file:///srv/shared/x.tar"}, **SHARED}, "gpu-2"),
        ({}, {"cluster_image_archive": {"url": "file:///srv/images/x.tar"}, **SHARED}, ""),
        ({}, {"cluster_image_archive": {"url": "https://files/srv/shared/x.tar"}, **SHARED}, ""),
        ({}, {"ray_node_user": "0:0"}, "gpu-2"),
    ],
)
def test_machines_and_networks(first: dict[str, Any], second: dict[str, Any], where: str) -> None:
    hostvars, groups = two_machines()
    for node, changes in (("gpu-1", first), ("gpu-2", second)):
        hostvars[node] |= changes
        hostvars[node] = {name: value for name, value in hostvars[node].items() if value is not None}
    findings = validate(hostvars, groups, KNOWN | {"cluster_image_archive", "ray_node_user"})
    assert [finding.where for finding in findings] == ([where] if where else [])
    assert all(finding.remedy for finding in findings)
    assert [finding.severity for finding in findings] == (
        ["warning"] if "ray_node_user" in second else ["error"] * len(findings)
    )


# --- Variables --------------------------------------------------------------------------------------------------------


def test_unknown_variable_is_reported_with_a_suggestion() -> None:
    hostvars, groups = one_machine()
    for worker in groups["workers"]:
        hostvars[worker]["ray_node_gpu"] = 4
    # Those of users are left alone.
    of_users = ("root", "my_shared_root", "raynodes", "jobs", "ansible_ray_node_gpus")
    hostvars["ray-head"] |= dict.fromkeys(("cluster_qqqqqqqqqqqq", *of_users), 1)
    unknown, near = validate(hostvars, groups, KNOWN)
    assert unknown.where == "ray-head" and "cluster_qqqqqqqqqqqq" in unknown.problem
    assert near.where == "worker-0, worker-1" and '"ray_node_gpus"' in near.remedy


# --- What a run reaches -----------------------------------------------------------------------------------------------


def test_a_limit_reaches_the_head_and_nodes() -> None:
    def missing(hosts: list[str], *works_on: str) -> list[str]:
        return [finding.where for finding in limit_findings(hosts, works_on, one_machine()[1])]

    assert missing(["ray-head", "worker-0", "worker-1"], "ray", "head") == []
    for host in ("worker-0", "elsewhere"):
        assert missing([host], "head") == ["group head"]
        assert missing([host]) == missing([host, "ray-head"], "head") == []
    assert missing(["elsewhere"], "ray") == ["group ray"]
    assert missing(["worker-1"], "ray") == []
    # Missing groups are not reported again.
    assert list(limit_findings(["worker-0"], ("ray", "head"), {"workers": ["worker-0"]})) == []


# --- Processes -----------------------------------------------------------------------------------------------------


def processes(**changes: Any) -> Inventory:
    """The inventory of a platform: nodes alone, each its own machine."""
    variables = {"ray_node_runtime": "process", "ray_node_python": "/opt/verl/bin/python3", **changes}
    hostvars = {name: {"ansible_connection": "argus.verl.ssh", **variables} for name in ("ctl", "gpu-0")}
    return hostvars, {"ray": ["ctl", "gpu-0"], "head": ["ctl"], "workers": ["gpu-0"]}


@pytest.mark.parametrize(
    ("changes", "of_one", "variable"),
    [
        ({}, {}, ""),
        ({"cluster_state_dir": "~/state"}, {}, ""),
        ({"ray_node_runtime": "slurm"}, {}, "ray_node_runtime is 'slurm'"),
        ({"ray_node_python": "python3"}, {}, "ray_node_python"),
        ({"ray_node_address": "127.0.0.1"}, {}, "ray_node_address"),
        ({"cluster_network": "mvp-ray"}, {}, "cluster_network"),
        ({"cluster_state_dir": "~ml/state"}, {}, "cluster_state_dir"),
        # Jobs could answer in place of modules over plain ssh, which is Ansible's default.
        *(({}, {"ansible_connection": name}, "ansible_connection") for name in ("ssh", "ansible.builtin.ssh", None)),
        ({}, {"ray_node_machine": "ctl"}, "ray_node_machine is another host"),
        ({}, {"ray_node_runtime": "container"}, "ray_node_runtime differs"),
    ],
)
def test_processes(changes: dict[str, Any], of_one: dict[str, Any], variable: str) -> None:
    hostvars, groups = processes(**changes)
    hostvars["gpu-0"] |= of_one
    hostvars["gpu-0"] = {name: value for name, value in hostvars["gpu-0"].items() if value is not None}
    findings = validate(hostvars, groups, KNOWN)
    assert (findings == []) == (not variable)
    assert not variable or any(variable in f"{finding.problem}: {finding.remedy}" for finding in findings)
