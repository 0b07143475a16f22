"""An allocation as an inventory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.slurm import allocation
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.allocation import (
    Allocation,
    HostNode,
    SlurmError,
    allocation_of,
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


def found(jobs: str = JOB, nodes: str = NODES) -> Allocation:
    result = allocation_of(jobs, nodes, lambda name: ADDRESSES.get(name, []))
    assert result is not None
    return result


def test_a_running_job_has_hosts_with_what_it_has_of_them() -> None:
    one = found()
    assert (one.job_id, one.name, one.state, one.reason) == (2, "verl", "RUNNING", "")
    assert one.ends_at == 1795358681
    assert one.hosts == one.workers
    assert one.hosts[0] == HostNode("gpu-0", "10.0.0.2", None, cpus=24, gpus=2)
    # Without an IPv4 address, Slurm's own name.
    assert one.hosts[1].address == "gpu-1"


def test_a_heterogeneous_job_has_its_head_on_the_first_component() -> None:
    one = found(HET_JOB)
    assert one.job_id == 3
    assert [(host.name, host.component, host.gpus) for host in one.hosts] == [
        ("cpu-0", 0, 0),
        ("gpu-0", 1, 2),
        ("gpu-1", 1, 2),
    ]
    assert [host.name for host in one.workers] == ["gpu-0", "gpu-1"]
    # In whatever order Slurm lists them.
    assert found("\n".join(reversed(HET_JOB.splitlines()))) == one


def test_it_ends_with_its_first_component() -> None:
    assert found(HET_JOB.replace("EndTime=1795358505", "EndTime=1795358400", 1)).ends_at == 1795358400
    assert found(JOB.replace("EndTime=1795358681", "EndTime=Unknown")).ends_at is None


def test_a_job_that_waits_has_no_hosts_but_a_reason() -> None:
    one = found(PENDING)
    assert (one.job_id, one.state, one.reason, one.hosts) == (3, "PENDING", "Resources", ())
    assert (one.starts_at, one.ends_at) == (1795358681, None)


def test_no_output_is_no_job() -> None:
    assert allocation_of("") is None
    assert allocation_of("No jobs in the system\n") is None


def test_a_node_that_the_administrator_drains_is_told() -> None:
    assert [host.leaving for host in found().hosts] == ["", "ALLOCATED+DRAIN (bad disk)"]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("ALLOCATED", ""),
        ("MIXED+CLOUD", ""),
        ("IDLE+DRAIN", "IDLE+DRAIN (why)"),
        ("DOWN*", "DOWN* (why)"),
        ("ALLOCATED*", "ALLOCATED* (why)"),
        ("ALLOCATED+NOT_RESPONDING", "ALLOCATED+NOT_RESPONDING (why)"),
    ],
)
def test_states_of_nodes(state: str, told: str) -> None:
    assert allocation.leaving_reason(state, "why [root@1795356412]") == told


def test_a_state_without_a_reason() -> None:
    assert allocation.leaving_reason("DOWN", "") == "DOWN"


def test_the_inventory_of_a_job() -> None:
    hosts = allocation.inventory_hosts(found())
    assert [(host.name, host.group) for host in hosts] == [
        ("ray-head", "head"),
        ("gpu-0", "workers"),
        ("gpu-1", "workers"),
    ]
    assert hosts[0].variables == {"ansible_host": "10.0.0.2", "slurm_node": "gpu-0"}
    assert hosts[1].variables == {
        "ansible_host": "10.0.0.2",
        "slurm_node": "gpu-0",
        "ray_node_gpus": 2,
        "ray_node_cpus": 24,
    }


def test_the_inventory_of_a_heterogeneous_job() -> None:
    hosts = allocation.inventory_hosts(found(HET_JOB))
    assert [(host.name, host.variables["slurm_node"]) for host in hosts] == [
        ("ray-head", "cpu-0"),
        ("gpu-0", "gpu-0"),
        ("gpu-1", "gpu-1"),
    ]
    assert [host.variables["slurm_component"] for host in hosts] == [0, 1, 1]


def test_memory_is_a_variable_where_slurm_counts_it() -> None:
    counted = JOB.replace(" Mem=0 ", " Mem=8000 ")
    assert allocation.inventory_hosts(found(counted))[1].variables["slurm_memory_mib"] == 8000


def test_names_that_ray_nodes_cannot_have() -> None:
    assert allocation.host_name("GPU_01.cluster") == "gpu-01-cluster"
    one = found()
    twins = replace(one, hosts=(one.hosts[0], replace(one.hosts[1], name="gpu_0")))
    with pytest.raises(SlurmError, match="gpu_0"):
        allocation.inventory_hosts(twins)


def test_a_job_without_hosts_is_an_empty_inventory() -> None:
    assert allocation.inventory_hosts(found(PENDING)) == []


def test_what_all_nodes_have_in_common() -> None:
    assert allocation.group_variables(found(), 1002) == {
        "slurm_job_id": 2,
        "ray_node_runtime": "process",
        "cluster_state_dir": "/tmp/argus-verl-1002-2",
        "cluster_ends_at": 1795358681,
    }
    assert "cluster_ends_at" not in allocation.group_variables(replace(found(), ends_at=None), 1002)


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
    assert allocation.newest_job(listed) == job_id
