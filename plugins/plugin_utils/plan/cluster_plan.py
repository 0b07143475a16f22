# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans a whole cluster: what each of its nodes and machines needs, decided from all of them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...module_utils.argus.cluster.membership import ExpectedNode
from ...module_utils.argus.ray import departures
from ...module_utils.cluster.machine import PlannedMachine, ProbedMachine
from ..inventory.inventory import Variables, address_of
from ..inventory.nodes import HEAD, PROCESS, WORKER, PlanError, Settings, accelerator_of
from .actions import AS_PLANNED_REASON, ActionKind, PlannedNode, plan_node_action
from .container import sessions_directory
from .drain import ODD_NAME_REMEDY, drain_command, is_plain


@dataclass(frozen=True)
class ClusterPlan:
    """What has to be done for a cluster."""

    # The nodes of the run, by name.
    nodes: Mapping[str, PlannedNode]
    # All machines, by the inventory host that represents each.
    machines: Mapping[str, PlannedMachine]
    head: str
    # Rows of node, action and reason; nodes that run as planned have none.
    changes: Sequence[Sequence[str]]

    def to_json(self) -> dict[str, Any]:
        """The return values of the module cluster_plan."""
        head_machine = next(machine for machine in self.machines.values() if self.head in machine.nodes)
        return {
            "nodes": {name: node.to_json() for name, node in self.nodes.items()},
            "machines": {host: asdict(machine) for host, machine in self.machines.items()},
            "changes": [list(row) for row in self.changes],
            "disrupts": any(node.disrupts for node in self.nodes.values()),
            "starts": any(node.action not in (ActionKind.KEEP, ActionKind.NONE) for node in self.nodes.values()),
            "prepares": any(machine.user for machine in self.machines.values()),
            "head_answers": head_machine.answers,
            "head_runs": self.head in head_machine.running,
        }


@dataclass(frozen=True)
class Planner:
    """Makes the plan from the inventory and the probed machines."""

    # The typed variables of all nodes of the inventory, by node.
    variables: Mapping[str, Variables]
    heads: Sequence[str]
    workers: Sequence[str]
    # The nodes that take part in this run.
    run_nodes: Sequence[str]
    # All machines, by the inventory host that represents each.
    machines: Mapping[str, ProbedMachine]
    # Images that are built, by name, with the hashes of their `inputs`.
    builds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # The file name of the controller's version of the program; machines with another one are prepared.
    program: str = ""

    def plan(self) -> ClusterPlan:
        host_of = {node: host for host, machine in self.machines.items() for node in machine.nodes}
        nodes = {name: self._plan_node(name, host_of[name]) for name in self.run_nodes}
        planned = {name: node for name, node in nodes.items() if not node.absent_reason}
        names = list(self.variables)
        machines = {
            host: PlannedMachine.of(machine, self._user(machine, planned), self._sessions_directory(machine), names)
            for host, machine in self.machines.items()
        }
        return ClusterPlan(nodes, machines, self.heads[0], change_rows(planned, machines.values(), names))

    def _user(self, machine: ProbedMachine, planned: Mapping[str, PlannedNode]) -> str:
        """The user, as uid:gid, of the nodes for which a machine has to be prepared; "" if it need not be."""
        is_outdated = machine.probe is not None and machine.probe.program != self.program
        nodes = [planned[node] for node in machine.nodes if node in planned]
        return next((node.user for node in nodes if is_outdated or node.action != ActionKind.KEEP), "")

    def _sessions_directory(self, machine: ProbedMachine) -> str:
        """The directory of Ray's sessions on a host where nodes are processes; "" if no node can start there."""
        variables = self.variables[machine.nodes[0]]
        cluster, above = variables["cluster_name"], str(variables["ray_node_env"].get("RAY_TMPDIR", "/tmp"))  # noqa: S108
        try:
            return sessions_directory(cluster, above) if variables["ray_node_runtime"] == PROCESS else ""
        except PlanError:
            return ""

    def _plan_node(self, name: str, host: str) -> PlannedNode:
        machine = self.machines[host]
        try:
            if machine.probe is None or machine.problem:
                raise PlanError(f"its machine {machine.name}: {machine.problem}")
            siblings = [node for node in machine.nodes if node in self.workers]
            return plan_node_action(self._settings(name, machine), machine.probe, siblings, host)
        except PlanError as error:
            absent = str(error).removeprefix(f"{name}: ")
            return PlannedNode(ExpectedNode(name, head=name in self.heads, absent=absent), host)

    def _accelerator(self, name: str) -> str:
        """The kind of accelerator: one for the whole cluster, unless the node's variable names another."""
        probes = [
            machine.probe
            for machine in self.machines.values()
            if machine.probe and not set(self.workers).isdisjoint(machine.nodes)
        ]
        return accelerator_of(self.variables[name]["ray_node_accelerator"], probes)

    def _address(self, name: str) -> str:
        """Where other nodes reach a node: from the inventory, or else from the probe; "" if neither has it."""
        variables = self.variables[name]
        if variables["cluster_network"] != "host":
            # A container network resolves the names of nodes.
            return str(variables["ray_node_address"] or name)
        machine = next(machine for machine in self.machines.values() if name in machine.nodes)
        process = machine.probe.process if machine.probe else None
        return str(variables["ray_node_address"] or (process.address if process else "") or address_of(variables))

    def _settings(self, name: str, machine: ProbedMachine) -> Settings:
        values, accelerator = self.variables[name], self._accelerator(name)
        address, head_address = self._address(name), self._address(self.heads[0])
        if not address or not head_address:
            whose = "its address" if not address else "the head's address"
            raise PlanError(
                f"{whose} is not known, as in a run without its host; add that to --limit, or set its ray_node_address"
            )
        # The time limit is among the derived variables, whose change restarts no node.
        derived = departures.ending_environment(values["cluster_ends_at"], values["cluster_stop_minutes"])
        return Settings(
            name=name,
            role=HEAD if name in self.heads else WORKER,
            machine=machine.name,
            accelerator=accelerator,
            address=address,
            head_address=head_address,
            derived_env={**machine.derived_env, **derived},
            image_inputs=self.builds.get(values["cluster_images"].get(accelerator), {}).get("inputs", ""),
            **{attribute.name: values[attribute.name] for attribute in fields(Settings) if attribute.name in values},
        )


def change_rows(
    plans: Mapping[str, PlannedNode], machines: Iterable[PlannedMachine], inventory_nodes: Collection[str]
) -> list[list[str]]:
    """Rows of node, action and reason; nodes that run as planned have no row.

    A node that is no longer in the inventory has a row, but no action: jobs may still run on it.
    """
    rows = [[node, plan.action.value, plan.reason] for node, plan in plans.items() if plan.reason != AS_PLANNED_REASON]
    for name in (name for machine in machines for name in machine.present if name not in inventory_nodes):
        # The names of processes are those of directories, which jobs can create.
        remedy = f"`{drain_command(name)}` takes it out" if is_plain(name) else ODD_NAME_REMEDY
        rows.append([name, "none", f"no longer in the inventory; {remedy}"])
    return rows
