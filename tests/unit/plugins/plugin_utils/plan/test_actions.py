from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import (
    DERIVED_LABEL,
    SETTINGS_LABEL,
    SPECIFICATION_LABEL,
    Container,
)
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import NodePlan
from ansible_collections.argus.verl.plugins.plugin_utils.plan.actions import (
    AS_PLANNED,
    STALE,
    Action,
    ActionKind,
    PlannedNode,
    decide,
)
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import container_arguments
from samples import container, plan, planned


def existing(plan: NodePlan, **changes: Any) -> dict[str, Container]:
    """Return the container of a plan, by name."""
    labels = container_arguments(plan)["labels"]
    return {plan.name: container(**{"labels": labels, "image_id": plan.image_id, **changes})}


def decided(plan: NodePlan, containers: dict[str, Container]) -> Action:
    """The action for a planned container, among those of its machine."""
    labels = container_arguments(plan)["labels"]
    wanted = [labels.get(name, "") for name in (SPECIFICATION_LABEL, SETTINGS_LABEL, DERIVED_LABEL)]
    return decide(plan, containers.get(plan.name), *wanted)


def test_missing_container_is_created() -> None:
    worker, other = plan(), plan(name="worker-1")
    action = decided(worker, existing(other))
    assert action == Action(ActionKind.CREATE, "no container", disrupts=False)


def test_container_that_runs_as_planned_is_kept() -> None:
    worker = plan()
    assert decided(worker, existing(worker)) == Action(ActionKind.KEEP, "runs as planned")


def test_image_from_other_inputs_is_replaced() -> None:
    """Before it is built, so that a job that runs is not ended unasked."""
    worker = plan()
    action = decided(replace(worker, outdated=True, image_id=""), existing(worker))
    assert (action.kind, action.disrupts) == (ActionKind.RECREATE, True)
    assert action.reason == "argus-verl-cpu:0.1.0 is built again from other inputs, it is running"
    stopped = decided(replace(worker, outdated=True, image_id=""), existing(worker, state="exited"))
    assert (stopped.kind, stopped.disrupts) == (ActionKind.RECREATE, False)
    # An image that was removed, of a node that runs, is not missed.
    assert decided(replace(worker, image_id=""), existing(worker)).kind is ActionKind.KEEP


def test_change_of_what_is_derived_does_not_restart_a_node() -> None:
    """A port that went down on another machine would end the jobs of all."""
    before, now = plan(derived_env={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}), plan(derived_env={"NCCL_IB_HCA": "=mlx5_0"})
    action = decided(now, existing(before))
    assert (action.kind, action.reason, action.disrupts) == (ActionKind.KEEP, STALE, False)
    assert decided(now, existing(now)).reason == AS_PLANNED
    assert decided(plan(), existing(now)).reason == STALE
    set_by_user = plan(derived_env={"NCCL_IB_HCA": "=mlx5_0"}, env={"NCCL_IB_HCA": "=mlx5_7"})
    assert container_arguments(set_by_user)["env"]["NCCL_IB_HCA"] == "=mlx5_7"
    assert container_arguments(now)["env"]["NCCL_IB_HCA"] == "=mlx5_0"
    # A value of the inventory is a setting like any other.
    assert decided(set_by_user, existing(now)).kind == ActionKind.RECREATE


@pytest.mark.parametrize("state", ["exited", "created", "dead"])
def test_stopped_container_is_started(state: str) -> None:
    worker = plan()
    action = decided(worker, existing(worker, state=state))
    assert action == Action(ActionKind.START, f"container is {state}", disrupts=False)


@pytest.mark.parametrize(("state", "disrupts"), [("running", True), ("exited", False)])
def test_container_with_other_settings_is_recreated(state: str, disrupts: bool) -> None:
    worker = plan(gpus=2)
    action = decided(worker, existing(plan(), state=state))
    reason = f"its settings changed: ray_node_cpus 48 → 24, ray_node_gpus 4 → 2, it is {state}"
    assert action == Action(ActionKind.RECREATE, reason, disrupts=disrupts)


def test_a_head_that_keeps_its_tables_is_recreated_without_a_disruption() -> None:
    old = plan(name="ray-head", role="head")
    new = replace(old, settings=replace(old.settings, ray_node_env={"A": "1"}))
    action = decided(new, existing(old))
    assert (action.kind, action.disrupts) == (ActionKind.RECREATE, False)
    # A new token is another cluster, and the tables of a head that had none are new.
    rotated = replace(new, settings=replace(new.settings, rotate_token=True))
    in_memory = replace(old, settings=replace(old.settings, cluster_head_storage="memory"))
    for planned_now, before in ((rotated, old), (new, in_memory), (in_memory, old)):
        assert decided(planned_now, existing(before)).disrupts


@pytest.mark.parametrize(("state", "disrupts"), [("running", True), ("exited", False)])
def test_container_of_an_older_image_is_recreated(state: str, disrupts: bool) -> None:
    worker = plan()
    action = decided(worker, existing(worker, state=state, image_id="sha256:old"))
    assert action == Action(ActionKind.RECREATE, f"argus-verl-cpu:0.1.0 was rebuilt, it is {state}", disrupts=disrupts)


def test_container_without_settings_is_recreated() -> None:
    worker = plan(gpus=2)
    labels = {**container_arguments(plan())["labels"]}
    del labels[SETTINGS_LABEL]
    action = decided(worker, existing(worker, labels=labels))
    assert action == Action(ActionKind.RECREATE, "its settings changed, it is running", disrupts=True)


@pytest.mark.parametrize(("state", "disrupts"), [("running", True), ("exited", False)])
def test_rotated_token_recreates_every_container(state: str, disrupts: bool) -> None:
    worker = plan(rotate_token=True)
    expected = Action(ActionKind.RECREATE, f"its token is rotated, it is {state}", disrupts=disrupts)
    for there in (existing(plan(), state=state), existing(plan(gpus=2), state=state)):
        assert decided(worker, there) == expected
    assert decided(worker, {}).kind == "create"


# --- The planned node -------------------------------------------------------------------------------------------------


def test_planned_node_as_json_and_back() -> None:
    worker = planned("recreate", "its settings changed, it is running")
    fact = json.loads(json.dumps(worker.to_json()))
    assert PlannedNode.from_json(fact) == worker
    # Roles read these.
    assert (fact["action"], fact["reason"], fact["disrupts"]) == ("recreate", worker.reason, True)
    assert (fact["image"], fact["container"], fact["user"]) == (worker.image, worker.container, "1000:1000")
    # Ansible refuses values of other types, such as members of an Enum.
    assert type(worker.to_json()["action"]) is str
