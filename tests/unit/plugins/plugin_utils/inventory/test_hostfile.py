from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.hostfile import Host, address_of, inventory_of, parse
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import validate

ADDRESSES = {"gpu-0": ["fd00::1", "10.0.0.1"], "gpu-1": ["fd00::2"], "local": ["127.0.1.1"]}


def resolve(name: str) -> list[str]:
    return ADDRESSES.get(name, [])


@pytest.mark.parametrize(
    ("line", "name", "gpus"),
    [
        ("gpu-0", "gpu-0", None),
        ("  gpu-0.lab.example   # the first", "gpu-0.lab.example", None),
        ("gpu_0 slots=8", "gpu_0", 8),
        ("gpu-0\tslots=8 max_slots=16", "gpu-0", 8),
        ("gpu-0 max-slots=16", "gpu-0", None),
        ("gpu-0:8", "gpu-0", 8),
        ("gpu-0:1#8", "gpu-0", 1),
        ("10.0.0.1:8", "10.0.0.1", 8),
        ("10.0.0.1 slots=9999", "10.0.0.1", 9999),
        # Without brackets, all of it is the address.
        ("fd00::1:8", "fd00::1:8", None),
        ("[fd00::1]:8", "fd00::1", 8),
        ("[fd00::1]", "fd00::1", None),
        ("[fd00::1] slots=4", "fd00::1", 4),
        ("fd00::1 slots=4", "fd00::1", 4),
    ],
)
def test_a_line(line: str, name: str, gpus: int | None) -> None:
    (host,), found = parse(f"\n# all of them\n{line}\n", "hostfile")
    assert found == []
    assert (host.name, host.line, host.gpus) == (name, 3, gpus)


@pytest.mark.parametrize(
    ("line", "what", "todo"),
    [
        ("gpu-0 slots=0", "slots are '0'", "give a number of GPUs, 1 or more"),
        ("gpu-0 slots=-1", "slots are '-1'", "give a number of GPUs, 1 or more"),
        ("gpu-0 slots=", "slots are ''", "give a number of GPUs, 1 or more"),
        ("gpu-0:", "slots are ''", "give a number of GPUs, 1 or more"),
        ("gpu-0:8:hca", "slots are '8:hca'", "give a number of GPUs, 1 or more"),
        ("gpu-0 slots=10000", "slots are '10000'", "give a number of GPUs, 1 or more"),
        ("gpu-0:8 slots=8", "has two numbers of slots", "keep one of them"),
        ("gpu-0 slots=8 slots=8", "has two numbers of slots", "keep one of them"),
        ("gpu-0 8", "'8' is not known", "write HOST, HOST slots=N or HOST:N"),
        ("gpu-0 slots = 8", "'slots' is not known", "write HOST, HOST slots=N or HOST:N"),
        ("gpu-0 slot=8", "'slot=8' is not known", "write HOST, HOST slots=N or HOST:N"),
        ("-gpu", "'-gpu' is neither the name nor the address of a host", "write HOST, HOST slots=N or HOST:N"),
        ("[gpu-0", "'[gpu-0' is neither the name nor the address of a host", "write HOST, HOST slots=N or HOST:N"),
        ("[]:8", "'[]:8' is neither the name nor the address of a host", "write HOST, HOST slots=N or HOST:N"),
        ("me@gpu-0", "'me@gpu-0' is neither the name nor the address of a host", "set ansible_user in group_vars"),
        ("\x1b[31mgpu", "x1b[31mgpu' is neither", "write HOST, HOST slots=N or HOST:N"),
    ],
)
def test_a_line_that_is_wrong(line: str, what: str, todo: str) -> None:
    hosts, (finding,) = parse(f"gpu-9\n{line}\n", "hostfile")
    assert finding.where == "hostfile, line 2"
    assert what in finding.what and finding.what.isprintable()
    assert finding.todo == todo
    assert [host.name for host in hosts] == ["gpu-9"]


def test_all_problems_at_once() -> None:
    hosts, found = parse("gpu-0:0\ngpu-1 slots=8\n\n?\ngpu-1 slots=8\n", "hostfile")
    assert [finding.where for finding in found] == ["hostfile, line 1", "hostfile, line 4", "hostfile, line 5"]
    assert found[2].what == "gpu-1 is already on line 2"
    assert hosts == [Host("gpu-1", 2, 8)]


def test_a_node_file_of_pbs_has_a_line_for_each_slot() -> None:
    hosts, found = parse("gpu-0\ngpu-0\ngpu-1\ngpu-0\ngpu-1\n", "nodefile")
    assert found == []
    assert [(host.name, host.line, host.gpus) for host in hosts] == [("gpu-0", 1, 3), ("gpu-1", 3, 2)]


@pytest.mark.parametrize("text", ["gpu-0 slots=2\ngpu-0\n", "gpu-0\ngpu-0 slots=2\n", "gpu-0:2\ngpu-0:2\n"])
def test_slots_in_several_lines_are_ambiguous(text: str) -> None:
    (finding,) = parse(text, "hostfile")[1]
    assert (finding.where, finding.what) == ("hostfile, line 2", "gpu-0 is already on line 1")
    assert finding.todo == "give a host one line with all its slots"


@pytest.mark.parametrize("text", ["", "# gpu-0\n\n"])
def test_a_file_without_hosts(text: str) -> None:
    hosts, (finding,) = parse(text, "hostfile")
    assert (hosts, finding.where, finding.what) == ([], "hostfile", "has no hosts")


HOSTS = [Host("gpu-0", 1, 8), Host("10.0.0.2", 4)]


def test_nodes_in_containers() -> None:
    placed, found = inventory_of(HOSTS, "container", "hostfile", resolve)
    assert found == []
    first = {"ansible_host": "gpu-0", "ray_node_machine": "gpu-0", "ray_node_address": "10.0.0.1"}
    second = {"ansible_host": "10.0.0.2", "ray_node_machine": "10.0.0.2", "ray_node_address": "10.0.0.2"}
    assert [(host.name, host.group, host.variables) for host in placed] == [
        ("ray-head", "head", first),
        ("ray-worker-0", "workers", {**first, "ray_node_gpus": 8}),
        ("ray-worker-1", "workers", second),
    ]
    # The collection has nothing to say against it.
    groups = {group: [host.name for host in placed if group == host.group] for group in ("head", "workers")}
    groups["ray"] = groups["head"] + groups["workers"]
    variables = {host.name: {**host.variables, "cluster_network": "host"} for host in placed}
    assert validate(variables, groups, {name for own in variables.values() for name in own}) == []


def test_nodes_that_are_processes() -> None:
    placed, found = inventory_of(HOSTS, "process", "hostfile", resolve)
    assert found == []
    assert [(host.name, host.group, host.variables) for host in placed] == [
        ("ray-head", "head", {"ansible_host": "gpu-0"}),
        ("ray-worker-0", "workers", {"ansible_host": "gpu-0", "ray_node_gpus": 8}),
        ("ray-worker-1", "workers", {"ansible_host": "10.0.0.2"}),
    ]


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("gpu-0", "10.0.0.1"),
        ("gpu-1", "fd00::2"),
        ("fd00::3", "fd00::3"),
        # Debian's own name of a machine.
        ("local", ""),
        ("127.0.0.1", ""),
        ("unknown", ""),
    ],
)
def test_the_address_of_a_host(name: str, address: str) -> None:
    assert address_of(Host(name, 1), resolve) == address


def test_hosts_without_an_address() -> None:
    hosts = [Host("unknown", 2), Host("gpu-0", 3), Host("local", 7)]
    _placed, found = inventory_of(hosts, "container", "hostfile", resolve)
    assert [(finding.where, finding.what) for finding in found] == [
        ("hostfile, line 2", "unknown has no address at which other hosts reach it"),
        ("hostfile, line 7", "local has no address at which other hosts reach it"),
    ]
    assert inventory_of(hosts, "process", "hostfile", resolve)[1] == []
