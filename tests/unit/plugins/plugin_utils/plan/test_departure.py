from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING
from ansible_collections.argus.verl.plugins.module_utils.argus.common.node_process import NodeProcess
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine, PlannedMachine, ProbedMachine
from ansible_collections.argus.verl.plugins.plugin_utils.plan.drain import (
    ODD_NAME_REMEDY,
    Departure,
    departure_findings,
    not_removed_findings,
    plan_departure,
    unlisted_worker_notes,
)
from samples import HEALTHY, PROCESS_HOST, container

INVENTORY = ["ray-head", "worker-0", "worker-1"]
MACHINES = {
    "ctl": replace(HEALTHY, containers={"ray-head": container()}),
    "gpu-0": replace(HEALTHY, containers={"worker-0": container(), "registry": container(None)}),
    "gpu-1": replace(HEALTHY, containers={"worker-1": container(state="exited"), "worker-9": container()}),
}


def planned(machines: dict[str, Machine]) -> dict[str, PlannedMachine]:
    return {
        name: PlannedMachine.of(ProbedMachine(name, [], machine), "", "", INVENTORY)
        for name, machine in machines.items()
    }


def ray_node(name: str, node_id: str = "1", state: str = "ALIVE", start: int = 0) -> dict[str, Any]:
    node = {"node_name": name, "node_id": node_id, "state": state, "start_time_ms": start, "node_ip": "10.0.0.9"}
    return {**node, "resources_total": {"worker_node": 100.0}}


def leave(node: str, *nodes: dict[str, Any], **machines: Any) -> Departure:
    return plan_departure(node, nodes, planned(MACHINES | machines), INVENTORY, "ctl")


def test_worker_of_the_inventory() -> None:
    nodes = [ray_node("worker-0", "old", start=1), ray_node("worker-0", "new", start=2), ray_node("worker-1", "x")]
    assert leave("worker-0", *nodes) == Departure("worker-0", "gpu-0", "new", runs=True, last=True, in_inventory=True)
    assert leave("worker-0", *reversed(nodes)).node_id == "new"
    dead = leave("worker-1", ray_node("worker-1", state="DEAD"))
    assert dead == Departure("worker-1", "gpu-1", "", runs=False, last=False, in_inventory=True)
    # The token stays on the machine of the head.
    both = replace(HEALTHY, containers={"worker-0": container()})
    assert leave("worker-0").last and not leave("worker-0", **{"gpu-0": HEALTHY, "ctl": both}).last
    stopped = {"worker-0": replace(HEALTHY, process=replace(PROCESS_HOST, node=NodeProcess("stopped")))}
    for processes, runs in ((PROCESSES, True), (PROCESSES | stopped, False)):
        result = plan_departure("worker-0", [ray_node("worker-0", "x")], planned(processes), INVENTORY, "ctl")
        assert result == Departure("worker-0", "worker-0", "x", runs=runs, last=not runs, in_inventory=True)
    # It left the inventory.
    result = leave("worker-9", ray_node("worker-9"))
    assert result == Departure("worker-9", "gpu-1", "1", runs=True, last=False, in_inventory=False)
    # The host has nothing of this node.
    assert plan_departure("worker-1", [], planned(PROCESSES), INVENTORY, "ctl").machine == ""


def refusals(leaving: Departure, **silent: str) -> list[str]:
    findings = departure_findings(leaving, ["ray-head"], [*INVENTORY, "worker-8"], silent, "gpu_0")
    assert all(finding.severity == ERROR and finding.remedy for finding in findings)
    return [finding.problem for finding in findings]


def test_nodes_that_cannot_be_removed() -> None:
    assert refusals(leave("worker-0", ray_node("worker-0"))) == refusals(leave("worker-1")) == []
    for leaving in (leave(""), leave("ray-head", ray_node("ray-head")), leave("worker-7")):
        assert len(refusals(leaving)) == 1
    # It is on no machine.
    assert len(refusals(leave("worker-8", ray_node("worker-8")))) == 1
    out = leave("worker-0", **{"gpu-0": HEALTHY})
    assert out.gone and out.to_json()["gone"]
    (finding,) = departure_findings(out, ["ray-head"], INVENTORY, {"gpu_1": "off"}, "gpu_0")
    assert finding.severity == WARNING
    (problem,) = refusals(out, gpu_0="does not answer: off")
    assert "gpu_0 does not answer: off" in problem
    assert not leave("worker-0").gone and not leave("worker-8", ray_node("worker-8")).gone


def test_nodes_that_a_removed_cluster_leaves_behind() -> None:
    nodes = [ray_node("worker-0"), ray_node("worker-9"), ray_node("worker-8"), ray_node("worker-7", state="DEAD")]
    (finding,) = not_removed_findings(nodes, planned(MACHINES).values(), "mvp", INVENTORY)
    assert (finding.where, finding.severity) == ("worker-8", WARNING)
    # The command removes a container of this name only if it is the cluster's: jobs name the nodes that they start.
    listed = "ps -aq --filter label=argus.verl.cluster=mvp --filter name=^worker-8$"
    assert finding.remedy == f"on its machine: docker rm -fv $(docker {listed})"
    podman = {name: replace(host, engine=replace(host.engine, name="podman")) for name, host in MACHINES.items()}
    assert "podman rm " in not_removed_findings(nodes, planned(podman).values(), "mvp", INVENTORY)[0].remedy
    (finding,) = not_removed_findings(nodes[1:3], planned(PROCESSES).values(), "mvp", INVENTORY)
    assert (finding.where, finding.remedy) == ("worker-8", "on its host: pkill -f 'node .*/mvp/nodes/worker-8$'")


@pytest.mark.parametrize("name", ["{{lookup('pipe','id')}}", "-x", "a\nb", "$(id)", ""])
def test_no_command_has_a_name_that_a_shell_or_ansible_would_evaluate(name: str) -> None:
    for machines in (MACHINES, PROCESSES):
        (finding,) = not_removed_findings([ray_node(name)], planned(machines).values(), "mvp", INVENTORY)
        assert finding.remedy == ODD_NAME_REMEDY
        assert "\n" not in finding.where
    assert unlisted_worker_notes(["worker-0"], INVENTORY) == []
    assert unlisted_worker_notes(["x", "y"], INVENTORY)[0].endswith("-e node=x")
    (note,) = unlisted_worker_notes([name], INVENTORY)
    assert note.endswith(ODD_NAME_REMEDY) and "\n" not in note


def test_containers_of_another_cluster_stay() -> None:
    machine = replace(HEALTHY, containers={"worker-0": container(), "worker-9": container()})
    (finding,) = not_removed_findings(
        [], planned({"gpu-0": replace(machine, cluster="mpv")}).values(), "mpv", INVENTORY
    )
    assert (finding.where, finding.severity, finding.remedy[-3:]) == ("worker-0", WARNING, "mvp")
    bare = replace(machine, containers={"worker-0": replace(container(), labels={})})
    (finding,) = not_removed_findings([], planned({"gpu-0": bare}).values(), "mvp", INVENTORY)
    assert (finding.where, finding.remedy) == ("worker-0", "")


# worker-9 has left the inventory, and its files are still on the host of worker-0.
PROCESSES = {
    "ctl": replace(HEALTHY, process=replace(PROCESS_HOST, directory="/nodes/ray-head", node=NodeProcess("running"))),
    "worker-0": replace(HEALTHY, process=replace(PROCESS_HOST, node=NodeProcess("running"), neighbours=["worker-9"])),
    "worker-1": replace(HEALTHY, process=replace(PROCESS_HOST, directory="/nodes/worker-1")),
}
