"""An allocation as an inventory: what Slurm's commands print, recorded with 22.05, and as newer releases print it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.slurm import allocation
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.allocation import (
    AllocatedHost,
    Allocation,
    SlurmError,
    parse_allocation,
)

RECORDED = Path(__file__).parent / "recorded"
JOB, HET_JOB, PENDING, NODES = (
    (RECORDED / f"{name}.txt").read_text() for name in ("job", "het_job", "pending", "nodes")
)
ADDRESSES = {
    "cpu-0": ["::1", "10.0.0.1"],
    "gpu-0": ["fe80::2", "127.0.1.1", "10.0.0.2", "10.1.0.2"],
    "gpu-1": ["2001:db8::3"],
}
# Of Slurm 24: another resource beside GPUs, and memory that is counted.
NEWER = (
    "JobId=7 JobName=a b NodeList=node-[1-2] JOB_GRES=gpu:rtx2080:3,gg:g0:1     Nodes=node-1 CPU_IDs=2-3 Mem=1024 "
    "GRES=gpu:rtx2080:1(IDX:1),gg:g0(CNT:1)     Nodes=node-2 CPU_IDs=0,8-9 Mem=2048 GRES=gpu:rtx2080:2(IDX:0,3) "
    "MinCPUsNode=2 Comment=its GRES=none"
)


def parsed(jobs: str = JOB, nodes: str = NODES) -> Allocation:
    result = parse_allocation(jobs, nodes, lambda name: ADDRESSES.get(name, []))
    assert result is not None
    return result


def test_a_running_job_has_hosts_with_what_it_has_of_them() -> None:
    one = parsed()
    assert (one.job_id, one.name, one.state, one.reason) == (2, "verl", "RUNNING", "")
    assert one.ends_at == 1795358681
    assert one.hosts == one.workers
    assert one.hosts[0] == AllocatedHost("gpu-0", "10.0.0.2", None, cpus=24, gpus=2)
    # Without an IPv4 address, Slurm's own name. The administrator drains it.
    assert (one.hosts[1].address, one.hosts[1].leaving) == ("gpu-1", "ALLOCATED+DRAIN (bad disk)")
    assert parsed(JOB.replace("EndTime=1795358681", "EndTime=Unknown")).ends_at is None
    hosts = allocation.inventory_hosts(one)
    assert [f"{host.group} {host.name}" for host in hosts] == ["head ray-head", "workers gpu-0", "workers gpu-1"]
    assert hosts[0].variables == {"ansible_host": "10.0.0.2", "slurm_node": "gpu-0"}
    assert hosts[1].variables == {**hosts[0].variables, "ray_node_gpus": 2, "ray_node_cpus": 24}
    # Where Slurm counts it.
    counted = allocation.inventory_hosts(parsed(JOB.replace(" Mem=0 ", " Mem=8000 ")))
    assert counted[1].variables["slurm_memory_mib"] == 8000


def test_a_heterogeneous_job_has_its_head_on_the_first_component() -> None:
    one = parsed(HET_JOB)
    assert one.job_id == 3
    assert [(host.component, host.gpus) for host in one.hosts] == [(0, 0), (1, 2), (1, 2)]
    assert [host.name for host in one.workers] == ["gpu-0", "gpu-1"]
    # In whatever order Slurm lists them.
    assert parsed("\n".join(reversed(HET_JOB.splitlines()))) == one
    # It ends with its first component.
    assert parsed(HET_JOB.replace("EndTime=1795358505", "EndTime=1795358400", 1)).ends_at == 1795358400
    hosts = [
        (host.name, *map(host.variables.get, ("slurm_node", "slurm_component")))
        for host in allocation.inventory_hosts(one)
    ]
    assert hosts == [("ray-head", "cpu-0", 0), ("gpu-0", "gpu-0", 1), ("gpu-1", "gpu-1", 1)]


def test_a_job_that_waits_has_no_hosts_but_a_reason() -> None:
    one = parsed(PENDING)
    assert (one.job_id, one.state, one.reason, one.hosts) == (3, "PENDING", "Resources", ())
    assert (one.starts_at, one.ends_at) == (1795358681, None)
    assert allocation.inventory_hosts(one) == []
    for nothing in ("", "No jobs in the system\n"):
        assert parse_allocation(nothing) is None


def test_states_of_nodes() -> None:
    for state in ("ALLOCATED", "MIXED+CLOUD"):
        assert allocation.leaving_reason(state, "why [root@1795356412]") == ""
    for state in ("IDLE+DRAIN", "DOWN*", "ALLOCATED+NOT_RESPONDING"):
        assert allocation.leaving_reason(state, "why [root@1795356412]") == f"{state} (why)"
    assert allocation.leaving_reason("DOWN", "") == "DOWN"


def test_names_that_ray_nodes_cannot_have() -> None:
    assert allocation.host_name("GPU_01.cluster") == "gpu-01-cluster"
    one = parsed()
    twins = replace(one, hosts=(one.hosts[0], replace(one.hosts[1], name="gpu_0")))
    with pytest.raises(SlurmError, match="gpu_0"):
        allocation.inventory_hosts(twins)


def test_what_all_nodes_have_in_common() -> None:
    common = {"slurm_job_id": 2, "ray_node_runtime": "process", "cluster_state_dir": "/tmp/argus-verl-1002-2"}
    assert allocation.group_variables(parsed(), 1002) == {**common, "cluster_ends_at": 1795358681}
    assert allocation.group_variables(replace(parsed(), ends_at=None), 1002) == common


@pytest.mark.parametrize(
    ("listed", "job_id"),
    [
        ("", None),
        ("7 PENDING\n5 RUNNING\n", 5),
        ("5 RUNNING\n6 RUNNING\n", 6),
        ("9 PENDING\n8 COMPLETING\n", 9),
        ("8 COMPLETING\n", None),
        ("17+0 RUNNING\n17+1 RUNNING\n", 17),
        ("12_3 RUNNING\nslurm is slow\n", None),
    ],
)
def test_of_several_jobs_with_one_name_one_counts(listed: str, job_id: int | None) -> None:
    assert allocation.newest_job_id(listed) == job_id


def test_a_list_of_nodes_is_expanded() -> None:
    assert allocation.expand_nodelist("") == []
    assert allocation.expand_nodelist("gpu-[08-10,7],login") == ["gpu-08", "gpu-09", "gpu-10", "gpu-7", "login"]
    assert allocation.expand_nodelist("r[1-2]n[3,5]x,r9") == ["r1n3x", "r1n5x", "r2n3x", "r2n5x", "r9"]


HUGE = ("n[0-99999999]", "n[1-9][0-9999][0-9]", f"n[{'0-9999,' * 9}1]", "n[0-9999]," * 9 + "n", f"n[{'1' * 5000}]")


@pytest.mark.parametrize("listed", ["gpu-[0-", "gpu-]", "gpu-[a-b]", "gpu-[1-]", "gpu-[]", "gpu-[1]]", "n[٣]", *HUGE])
def test_what_is_no_list_of_nodes_is_refused(listed: str) -> None:
    with pytest.raises(SlurmError):
        allocation.expand_nodelist(listed)


def test_gpus_and_cpus_are_counted() -> None:
    gres = {
        "": 0,
        "gpu:8": 8,
        "gpu:1g.10gb:3(IDX:0-2),gpu:h100:4(IDX:3-6)": 7,
        "gres/gpu=4": 4,
        "gg:g0(CNT:1),shard:4": 0,
        "gg:g0(CNT:1),gpu:rtx2080:1(IDX:1)": 1,
    }
    assert {text: allocation.gpu_count(text) for text in gres} == gres
    assert [allocation.cpu_count(text) for text in ("", "0-3,8", "7", "all")] == [0, 5, 1, 0]


def test_fields_of_records() -> None:
    """A value may have spaces, and the first of a key counts; each node has what its group has."""
    record = next(allocation.records_of(NEWER))
    assert [record[name] for name in ("JobName", "Comment", "Mem")] == ["a b", "its", "1024"]
    nodes = allocation.resources_by_node(NEWER)
    shown = {name: [node[field] for field in ("CPU_IDs", "Mem")] for name, node in nodes.items()}
    assert shown == {"node-1": ["2-3", "1024"], "node-2": ["0,8-9", "2048"]}
    assert allocation.gpu_count(nodes["node-1"]["GRES"]) == 1
    record = next(allocation.records_of(PENDING))
    assert record["Account"] == "(null)"
    values = [allocation.field_value(record, name) for name in ("Account", "EndTime", "Absent", "Reason")]
    assert values == ["", "", "", "Resources"]
