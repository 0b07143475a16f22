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
    AS_PLANNED_REASON,
    STALE_VARIABLES_REASON,
    Action,
    PlannedNode,
    decide,
)
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import container_arguments
from samples import container, plan, planned

HEAD = plan(name="ray-head", role="head")


def existing(plan: NodePlan, **changes: Any) -> Container:
    return container(**{"labels": container_arguments(plan)["labels"], "image_id": plan.image_id, **changes})


def decided(plan: NodePlan, current: Container | None) -> Action:
    labels = container_arguments(plan)["labels"]
    values = [labels.get(name, "") for name in (SPECIFICATION_LABEL, SETTINGS_LABEL, DERIVED_LABEL)]
    return decide(plan, current, *values)


def head(before: NodePlan = HEAD, **changes: Any) -> NodePlan:
    return replace(before, settings=replace(before.settings, **changes))


@pytest.mark.parametrize(
    ("desired", "current", "kind", "disrupts"),
    [
        (plan(), None, "create", False),
        (plan(rotate_token=True), None, "create", False),
        (plan(), existing(plan()), "keep", False),
        # A node that runs does not need its image any more.
        (replace(plan(), image_id=""), existing(plan()), "keep", False),
        *((plan(), existing(plan(), state=state), "start", False) for state in ("exited", "created", "dead")),
        *(
            (desired, existing(current, state=state, **changes), "recreate", state == "running")
            for state in ("running", "exited")
            for desired, current, changes in (
                (plan(gpus=2), plan(), {}),
                (plan(gpus=2), plan(), {"labels": {}}),
                (plan(), plan(), {"image_id": "sha256:old"}),
                # Before the image is built, so that a job that runs is not ended unasked.
                (replace(plan(), outdated=True, image_id=""), plan(), {}),
                (plan(rotate_token=True), plan(), {}),
                # A new token is another cluster, and the tables of a head that had none are new.
                (head(ray_node_env={"A": "1"}, rotate_token=True), HEAD, {}),
                (HEAD, head(cluster_head_storage="memory"), {}),
                (head(cluster_head_storage="memory"), HEAD, {}),
            )
        ),
        # A head that keeps its tables.
        (head(ray_node_env={"A": "1"}), existing(HEAD), "recreate", False),
    ],
)
def test_actions(desired: NodePlan, current: Container | None, kind: str, disrupts: bool) -> None:
    action = decided(desired, current)
    assert (action.kind, action.disrupts) == (kind, disrupts)
    assert action.reason


def test_change_of_what_is_derived_does_not_restart_a_node() -> None:
    """A port that went down on another machine would end the jobs of all."""
    before, now = plan(derived_env={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}), plan(derived_env={"NCCL_IB_HCA": "=mlx5_0"})
    action = decided(now, existing(before))
    assert (action.kind, action.reason, action.disrupts) == ("keep", STALE_VARIABLES_REASON, False)
    assert decided(now, existing(now)).reason == AS_PLANNED_REASON
    assert decided(plan(), existing(now)).reason == STALE_VARIABLES_REASON
    # A value of the inventory is a setting like any other.
    set_by_user = plan(derived_env={"NCCL_IB_HCA": "=mlx5_0"}, env={"NCCL_IB_HCA": "=mlx5_7"})
    assert container_arguments(set_by_user)["env"]["NCCL_IB_HCA"] == "=mlx5_7"
    assert decided(set_by_user, existing(now)).kind == "recreate"


def test_planned_node_as_json_and_back() -> None:
    worker = planned("recreate", "its settings changed, it is running")
    fact = json.loads(json.dumps(worker.to_json()))
    assert PlannedNode.from_json(fact) == worker
    # Ansible refuses values of other types, such as members of an Enum.
    assert type(worker.to_json()["action"]) is str
