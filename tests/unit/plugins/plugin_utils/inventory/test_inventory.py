from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import (
    machine_name,
    placement,
    run_findings,
    summary,
    validate,
)

Inventory = tuple[dict[str, dict[str, Any]], dict[str, list[str]]]
KNOWN = {
    "cluster_name",
    "cluster_network",
    "cluster_state_dir",
    "ray_node_address",
    "ray_node_cpus",
    "ray_node_gpus",
    "ray_node_machine",
    "shared_root",
    "shared_root_source",
}


def one_machine() -> Inventory:
    """Like inventories/dev: three containers on this machine."""
    node = {"ansible_connection": "local", "cluster_name": "mvp"}
    hostvars = {"ray-head": dict(node), "worker-0": dict(node), "worker-1": dict(node)}
    groups = {
        "ray": ["ray-head", "worker-0", "worker-1"],
        "head": ["ray-head"],
        "workers": ["worker-0", "worker-1"],
    }
    return hostvars, groups


def two_machines() -> Inventory:
    """Like production: a node is a machine, with an address."""
    hostvars: dict[str, dict[str, Any]] = {
        name: {"cluster_network": "host", "ray_node_address": address}
        for name, address in (("gpu-1", "10.0.0.1"), ("gpu-2", "10.0.0.2"))
    }
    groups = {"ray": ["gpu-1", "gpu-2"], "head": ["gpu-1"], "workers": ["gpu-2"]}
    return hostvars, groups


def findings(inventory: Inventory) -> list[tuple[str, str]]:
    return [(finding.where, finding.what) for finding in validate(*inventory, KNOWN)]


@pytest.mark.parametrize("inventory", [one_machine(), two_machines()], ids=["one machine", "two machines"])
def test_correct_inventory_has_no_findings(inventory: Inventory) -> None:
    assert validate(*inventory, KNOWN) == []


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


def test_the_first_node_of_a_run_represents_its_machine() -> None:
    hostvars, groups = one_machine()
    nodes = groups["ray"]
    assert placement(nodes, hostvars, nodes) == {"ray-head": nodes}
    assert placement(nodes, hostvars, ["worker-1"]) == {"worker-1": nodes}
    # Without any, it is a host that the run leaves out.
    assert placement(nodes, hostvars, ["elsewhere"]) == {"ray-head": nodes}


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"ansible_connection": "local"}, "localhost"),
        ({"ansible_connection": "local", "ray_node_machine": "box"}, "box"),
        (SSH, "node"),
        ({"ansible_connection": "local", "ray_node_runtime": "process"}, "node"),
    ],
)
def test_name_of_a_machine(variables: dict[str, Any], name: str) -> None:
    assert machine_name("node", variables) == name


def test_cluster_has_one_head() -> None:
    hostvars, groups = one_machine()
    groups["head"], groups["workers"] = ["ray-head", "worker-0"], ["worker-1"]
    assert validate(hostvars, groups, KNOWN) == [
        Finding("group head", "has 2 hosts (ray-head, worker-0)", "a cluster has one head: keep exactly one")
    ]
    groups["head"], groups["workers"] = [], ["worker-0", "worker-1"]
    assert findings((hostvars, groups)) == [("group head", "has no hosts")]
    del groups["head"]
    assert findings((hostvars, groups)) == [("group head", "has no hosts")]


def test_misspelt_group_is_suggested() -> None:
    """Unless it has no hosts, or is another group of the cluster."""
    hostvars, groups = one_machine()
    groups["worker"] = groups.pop("workers")
    (finding,) = validate(hostvars, groups, KNOWN)
    assert finding.todo == 'add at least one worker: the head never trains; did you mean "worker"?'
    groups["heads"], groups["head"] = [], []
    assert "did you mean" not in validate(hostvars, groups, KNOWN)[0].todo


def test_cluster_has_workers() -> None:
    hostvars, groups = one_machine()
    groups["workers"] = []
    assert findings((hostvars, groups)) == [("group workers", "has no hosts")]
    del groups["workers"]
    assert findings((hostvars, groups)) == [("group workers", "has no hosts")]


@pytest.mark.parametrize("name", ["Worker-0", "worker_0", "worker.0", "-worker", "worker-", "w" * 64])
def test_invalid_name(name: str) -> None:
    hostvars, groups = one_machine()
    hostvars[name] = hostvars.pop("worker-0")
    groups["ray"][1] = groups["workers"][0] = name
    assert findings((hostvars, groups)) == [(name, "is not a valid node name")]


@pytest.mark.parametrize("name", ["w", "0", "w" * 63, "a--b", "gpu-17"])
def test_valid_name(name: str) -> None:
    hostvars, groups = one_machine()
    hostvars[name] = hostvars.pop("worker-0")
    groups["ray"][1] = groups["workers"][0] = name
    assert findings((hostvars, groups)) == []


@pytest.mark.parametrize("variable", ["ray_node_gpus", "ray_node_cpus"])
@pytest.mark.parametrize("value", [-1, 1.5, "-4", "4 ", "4.0", "", "all", True, [4]])
def test_invalid_count(variable: str, value: object) -> None:
    hostvars, groups = one_machine()
    hostvars["worker-0"][variable] = value
    assert validate(hostvars, groups, KNOWN) == [
        Finding("worker-0", f"{variable} is {value!r}", "set a whole number, or remove it for the default")
    ]


@pytest.mark.parametrize("value", [0, 8, "8", None])
def test_valid_count(value: int | str | None) -> None:
    hostvars, groups = one_machine()
    hostvars["worker-0"]["ray_node_gpus"] = value
    assert findings((hostvars, groups)) == []


@pytest.mark.parametrize("variable", ["shared_root", "shared_root_source", "cluster_state_dir"])
@pytest.mark.parametrize("value", ["private", "./private", "~/private", "", "/", "//", "/a/../..", "/a\nb", None, 7])
def test_path_that_is_not_that_of_a_directory(variable: str, value: Any) -> None:
    hostvars, groups = one_machine()
    hostvars["ray-head"][variable] = value
    assert validate(hostvars, groups, KNOWN) == [
        Finding(
            "ray-head",
            f"{variable} is {value!r}",
            'set the absolute path of a directory other than /, without ".."',
        )
    ]


NAMES = [
    "",
    ".",
    "..",
    "a/b",
    "../mvp",
    "/",
    "a b",
    "-rf",
    "Mvp",
    "mvp\n",
    "x" * 64,
    "mvp\0",
    "_x",
    ".mvp",
    None,
    7,
    True,
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_name_of_a_cluster_that_is_no_name(name: Any) -> None:
    """A directory, a label and a network have it: '' or '..' would be the state of all clusters."""
    hostvars, groups = one_machine()
    for host in groups["ray"]:
        hostvars[host]["cluster_name"] = name
    assert validate(hostvars, groups, KNOWN) == [
        Finding(
            "ray-head, worker-0, worker-1",
            f"cluster_name is {name!r}",
            "use lower-case letters, digits, dots, dashes and underscores, at most 63, beginning with a letter or a "
            "digit: it is the name of a directory",
        )
    ]


@pytest.mark.parametrize("name", ["mvp", "lab-2", "team.a_1", "7", "x" * 63])
def test_name_of_a_cluster(name: str) -> None:
    hostvars, groups = one_machine()
    hostvars["ray-head"]["cluster_name"] = name
    assert validate(hostvars, groups, KNOWN) == []


def test_name_of_a_network_that_is_an_option() -> None:
    hostvars, groups = one_machine()
    hostvars["ray-head"]["cluster_network"] = "--driver=macvlan"
    (finding,) = validate(hostvars, groups, KNOWN)
    assert finding.what == "cluster_network is '--driver=macvlan'"


@pytest.mark.parametrize("user", ["ray", "1000", "1000:", "-1:0", 1000, None])
def test_user_of_nodes_that_has_no_numbers(user: Any) -> None:
    hostvars, groups = one_machine()
    hostvars["ray-head"]["ray_node_user"] = user
    assert validate(hostvars, groups, KNOWN | {"ray_node_user"}) == [
        Finding("ray-head", f"ray_node_user is {user!r}", 'set numbers, as in "61000:61000"')
    ]


def test_nodes_of_root_are_a_warning() -> None:
    hostvars, groups = one_machine()
    hostvars["ray-head"]["ray_node_user"] = "0:0"
    hostvars["worker-0"]["ray_node_user"] = "61000:100"
    assert validate(hostvars, groups, KNOWN | {"ray_node_user"}) == [
        Finding(
            "ray-head",
            "ray_node_user is root: so is every job in its container, and on the shared root",
            'set another user, such as "61000:61000", or remove ray_node_user for the default',
            WARNING,
        )
    ]


@pytest.mark.parametrize(
    ("url", "wrong"),
    [("file:///srv/shared/verl.tar", True), ("file:///srv/images/verl.tar", False), ("https://files/verl.tar", False)],
)
def test_images_are_not_loaded_from_the_shared_root(url: str, wrong: bool) -> None:
    hostvars, groups = one_machine()
    hostvars["worker-0"] |= {"shared_root_source": "/srv/shared", "cluster_image_archive": {"url": url}}
    known = KNOWN | {"shared_root_source", "cluster_image_archive"}
    assert [finding.where for finding in validate(hostvars, groups, known)] == ["worker-0"] * wrong


@pytest.mark.parametrize("state_dir", ["/srv/shared", "/srv/shared/", "/srv/shared/user/state"])
def test_token_in_the_shared_root(state_dir: str) -> None:
    hostvars, groups = one_machine()
    hostvars["ray-head"] |= {"cluster_state_dir": state_dir, "shared_root_source": "/srv/shared"}
    (finding,) = validate(hostvars, groups, KNOWN)
    assert finding.what == f"cluster_state_dir {state_dir.rstrip('/')} lies in the shared root"
    hostvars["ray-head"]["cluster_state_dir"] = "/srv/shared-state"
    assert validate(hostvars, groups, KNOWN) == []


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "gpu-2", ""])
def test_host_network_needs_an_address_that_others_reach(address: str) -> None:
    hostvars, groups = two_machines()
    hostvars["gpu-2"]["ray_node_address"] = address
    (finding,) = validate(hostvars, groups, KNOWN)
    assert (finding.where, finding.what) == (
        "gpu-2",
        f"ray_node_address is {address!r} with cluster_network: host",
    )
    assert "set the IP address" in finding.todo


def test_host_network_without_an_address() -> None:
    hostvars, groups = two_machines()
    del hostvars["gpu-2"]["ray_node_address"]
    assert findings((hostvars, groups)) == [("gpu-2", "ray_node_address is '' with cluster_network: host")]


def test_address_of_the_connection_is_that_of_the_node() -> None:
    hostvars, groups = two_machines()
    hostvars["gpu-2"] = {"cluster_network": "host", "ansible_host": "10.0.0.2"}
    assert findings((hostvars, groups)) == []
    hostvars["gpu-2"]["ansible_host"] = "gpu-2.example.org"
    assert findings((hostvars, groups)) == [("gpu-2", "ray_node_address is '' with cluster_network: host")]


def test_ipv6_address_is_accepted() -> None:
    hostvars, groups = two_machines()
    hostvars["gpu-2"]["ray_node_address"] = "fd00::2"
    assert findings((hostvars, groups)) == []


def test_container_network_does_not_span_two_machines() -> None:
    hostvars, groups = two_machines()
    for settings in hostvars.values():
        settings["cluster_network"] = "mvp-ray"
    expected = ("gpu-1, gpu-2", "a container network does not span 2 machines (gpu-1, gpu-2)")
    assert findings((hostvars, groups)) == [expected]


def test_one_node_of_two_machines_in_a_container_network() -> None:
    hostvars, groups = two_machines()
    del hostvars["gpu-2"]["cluster_network"]
    assert findings((hostvars, groups)) == [("gpu-2", "a container network does not span 2 machines (gpu-1, gpu-2)")]


def test_nodes_of_one_machine_share_its_network_and_address() -> None:
    hostvars, groups = one_machine()
    for node in groups["ray"]:
        hostvars[node] |= {"cluster_network": "host", "ray_node_address": "10.0.0.1"}
    assert validate(hostvars, groups, KNOWN) == []


def test_address_of_two_machines() -> None:
    hostvars, groups = two_machines()
    hostvars["gpu-2"]["ray_node_address"] = "10.0.0.1"
    assert validate(hostvars, groups, KNOWN) == [
        Finding(
            "gpu-1, gpu-2",
            "are on 2 machines (gpu-1, gpu-2) with the same ray_node_address 10.0.0.1",
            "correct the address, or, for nodes of one machine, set the same ray_node_machine",
        )
    ]
    # In a container network, the address has another meaning.
    for settings in hostvars.values():
        settings |= {"cluster_network": "mvp-ray", "ray_node_machine": "gpu-1"}
    assert findings((hostvars, groups)) == []


VALUES: dict[str, tuple[list[Any], list[Any], str]] = {
    "cluster_port_base": (
        [1024, "20000", 63536],
        [1023, 63537, "", "20000 ", -1, True, None, 2e4, "\uff12\uff10\uff10\uff10\uff10"],
        "set a whole number from 1024 to 63536: each node has 1000 ports from it on",
    ),
    "cluster_dashboard_port": (
        [1, "8265", 65535],
        [0, 65536, "", True, None],
        "set a port, a whole number from 1 to 65535",
    ),
    "ray_node_rdma": (["auto", True, "false"], ["yes", None, ""], "set auto, true or false"),
    "ray_node_groups": (
        [[], [44, "render"], "44,render", ["4" * 10]],
        [[""], ["a b"], ["-1"], None, 44, ["Render"], ["4" * 11], ["x" * 33]],
        'list numbers or names of groups in the image, as in ["44", "render"]',
    ),
    "ray_node_ulimits": (
        [[], ["nofile:1024:2048", "memlock:-1"], "core:-1:-1"],
        [["nofile"], ["nofile:many"], ["nofile:1:2:3"], ["nofile=1:2"], ["nofile:-2:1"], None, {"nofile": 1}],
        'list limits as in ["nofile:1048576:1048576"]; -1 is unlimited',
    ),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (_good, bad, _todo) in VALUES.items() for value in bad], ids=repr
)
def test_value_that_is_none(name: str, value: Any) -> None:
    hostvars, groups = one_machine()
    hostvars["worker-0"][name] = value
    found = validate(hostvars, groups, KNOWN | set(VALUES))
    assert found == [Finding("worker-0", f"{name} is {value!r}", VALUES[name][2])]


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (good, _bad, _todo) in VALUES.items() for value in good], ids=repr
)
def test_value(name: str, value: Any) -> None:
    hostvars, groups = one_machine()
    hostvars["worker-0"][name] = value
    assert validate(hostvars, groups, KNOWN | set(VALUES)) == []


def test_unknown_variable_is_reported_with_a_suggestion() -> None:
    hostvars, groups = one_machine()
    hostvars["worker-0"]["ray_node_gpu"] = 4
    hostvars["worker-1"]["ray_node_gpu"] = 4
    hostvars["ray-head"]["cluster_qqqqqqqqqqqq"] = 1
    hostvars["ray-head"]["other_variable"] = 1
    assert validate(hostvars, groups, KNOWN) == [
        Finding(
            "ray-head",
            "variable cluster_qqqqqqqqqqqq is unknown",
            "remove it; the roles' READMEs list all variables",
        ),
        Finding("worker-0, worker-1", "variable ray_node_gpu is unknown", 'did you mean "ray_node_gpus"?'),
    ]


@pytest.mark.parametrize("name", ["root", "my_shared_root", "nfs_root", "raynodes", "jobs", "ansible_ray_node_gpus"])
def test_variables_of_users_are_left_alone(name: str) -> None:
    hostvars, groups = one_machine()
    hostvars["worker-0"][name] = 1
    assert validate(hostvars, groups, KNOWN) == []


# --- What a run reaches -----------------------------------------------------------------------------------------------


def reached(*hosts: str, works_on: tuple[str, ...]) -> list[Finding]:
    return list(run_findings(hosts, works_on, one_machine()[1]))


def test_run_without_a_limit_reaches_everything() -> None:
    assert reached("ray-head", "worker-0", "worker-1", works_on=("ray", "head")) == []


@pytest.mark.parametrize("host", ["worker-0", "elsewhere"])
def test_limit_without_the_head_is_refused(host: str) -> None:
    assert reached(host, works_on=("head",)) == [
        Finding("group head", "--limit leaves out all of its hosts", "add some of them: ray-head")
    ]
    assert reached(host, works_on=()) == []
    assert reached(host, "ray-head", works_on=("head",)) == []


def test_limit_without_nodes_is_refused() -> None:
    assert reached("elsewhere", works_on=("ray",)) == [
        Finding("group ray", "--limit leaves out all of its hosts", "add some of them: ray-head, worker-0, worker-1")
    ]
    assert reached("worker-1", works_on=("ray",)) == []


def test_missing_groups_are_not_reported_again() -> None:
    assert list(run_findings(["worker-0"], ("ray", "head"), {"workers": ["worker-0"]})) == []


# --- Sources ----------------------------------------------------------------------------------------------------------


# --- All together -----------------------------------------------------------------------------------------------------


def test_summary() -> None:
    hostvars, groups = one_machine()
    assert summary(hostvars, groups, "other") == "Inventory fine: cluster mvp, 1 head, 2 workers"
    hostvars, groups = two_machines()
    assert summary(hostvars, groups, "other") == "Inventory fine: cluster other, 1 head, 1 worker"


def test_all_problems_are_reported_at_once() -> None:
    hostvars, groups = copy.deepcopy(one_machine())
    groups["head"], groups["workers"] = [], ["worker-0", "Worker_1"]
    hostvars["Worker_1"] = {"ray_node_machine": "box", "shared_root": "private", "cluster_nmae": "mvp"}
    hostvars["worker-0"]["ray_node_gpus"] = "four"
    assert findings((hostvars, groups)) == [
        ("group head", "has no hosts"),
        ("Worker_1", "is not in the group ray"),
        ("worker-0", "ray_node_gpus is 'four'"),
        ("Worker_1", "is not a valid node name"),
        (
            "worker-0, Worker_1",
            "a container network does not span 2 machines (localhost, box)",
        ),
        ("Worker_1", "shared_root is 'private'"),
        ("Worker_1", "variable cluster_nmae is unknown"),
    ]


def processes(**changes: Any) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """The inventory of a platform: nodes alone, each its own machine."""
    variables = {"ray_node_runtime": "process", "ray_node_python": "/opt/verl/bin/python3", **changes}
    variables.setdefault("ansible_connection", "argus.verl.ssh")
    hostvars = {name: dict(variables) for name in ("ctl", "gpu-0")}
    return hostvars, {"ray": ["ctl", "gpu-0"], "head": ["ctl"], "workers": ["gpu-0"]}


KNOWN_OF_PROCESSES = {"ray_node_runtime", "ray_node_python", "ray_node_address", "cluster_state_dir", *KNOWN}


def test_processes() -> None:
    hostvars, groups = processes()
    assert validate(hostvars, groups, KNOWN_OF_PROCESSES) == []
    hostvars, groups = processes(cluster_state_dir="~/state")
    assert validate(hostvars, groups, KNOWN_OF_PROCESSES) == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"ray_node_runtime": "slurm"}, "ray_node_runtime is 'slurm'"),
        ({"ray_node_python": ""}, "ray_node_python is not set to a path"),
        ({"ray_node_python": "python3"}, "ray_node_python is not set to a path"),
        ({"ray_node_address": "127.0.0.1"}, "ray_node_address is '127.0.0.1' with cluster_network: host"),
        ({"cluster_network": "mvp-ray"}, "cluster_network is 'mvp-ray'"),
        ({"cluster_state_dir": "~ml/state"}, "cluster_state_dir is '~ml/state'"),
    ],
)
def test_settings_of_processes(changes: dict[str, Any], what: str) -> None:
    hostvars, groups = processes(**changes)
    assert what in {finding.what for finding in validate(hostvars, groups, KNOWN_OF_PROCESSES)}


@pytest.mark.parametrize("connection", ["ssh", "ansible.builtin.ssh", None])
def test_answers_of_jobs_over_plain_ssh_are_refused(connection: str | None) -> None:
    hostvars, groups = processes()
    hostvars["gpu-0"]["ansible_connection"] = connection
    if not connection:
        # Without a variable, Ansible takes ssh.
        del hostvars["gpu-0"]["ansible_connection"]
    (finding,) = validate(hostvars, groups, KNOWN_OF_PROCESSES)
    assert (finding.where, finding.severity) == ("gpu-0", "error")
    assert "ansible_connection: argus.verl.ssh" in finding.todo


def test_a_process_runs_on_its_own_host() -> None:
    hostvars, groups = processes()
    hostvars["gpu-0"]["ray_node_machine"] = "ctl"
    found = validate(hostvars, groups, KNOWN_OF_PROCESSES)
    assert "ray_node_machine is another host" in {finding.what for finding in found}


def test_nodes_of_one_cluster_run_in_one_way() -> None:
    hostvars, groups = processes()
    hostvars["ctl"]["ray_node_runtime"] = "container"
    found = validate(hostvars, groups, KNOWN_OF_PROCESSES)
    assert "ray_node_runtime differs: ctl container, gpu-0 process" in {finding.what for finding in found}
