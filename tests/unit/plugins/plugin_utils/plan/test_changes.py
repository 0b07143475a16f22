from __future__ import annotations

from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.argus.common.node_process import NodeProcess
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine, PlannedMachine, ProbedMachine
from ansible_collections.argus.verl.plugins.plugin_utils.plan.cluster_plan import change_rows
from samples import HEALTHY, PROCESS_HOST, container, planned

NODES = ["ray-head", "worker-0", "worker-1"]


def probed(machine: Machine) -> PlannedMachine:
    return PlannedMachine.of(ProbedMachine("box", NODES, machine), "", "", NODES)


def test_changes_have_a_row_for_each_node_that_is_not_kept() -> None:
    plans = {
        "ray-head": planned("start", "container is exited"),
        "worker-0": planned("create", "no container"),
        "worker-1": planned(),
    }
    assert change_rows(plans, [probed(HEALTHY)], NODES) == [
        ["ray-head", "start", "container is exited"],
        ["worker-0", "create", "no container"],
    ]


def test_node_that_left_the_inventory_is_listed_without_an_action() -> None:
    there = {"worker-0": container(), "worker-9": container(), "registry": container(None), "x": container("prod")}
    (row,) = change_rows({}, [probed(replace(HEALTHY, containers=there))], NODES)
    assert row == ["worker-9", "none", "no longer in the inventory; `drain.yml -e node=worker-9` takes it out"]
    odd = replace(HEALTHY, process=replace(PROCESS_HOST, node=NodeProcess("running"), neighbours=["$(id)"]))
    (row,) = change_rows({}, [probed(odd)], NODES)
    assert "drain.yml" not in row[2]
