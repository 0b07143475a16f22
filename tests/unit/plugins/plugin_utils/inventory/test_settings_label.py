from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import SPECIFICATION_LABEL
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import (
    NodePlan,
    changed_settings,
    settings_label,
)
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import container_arguments
from samples import head, plan


def change(before: NodePlan, now: NodePlan) -> str:
    return changed_settings(settings_label(before), settings_label(now))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cpus": 7}, "ray_node_cpus 48 → 7"),
        ({"shm_gib": 3}, "ray_node_shm_gib 2.0 → 3.0"),
        ({"read_only": False}, "ray_node_read_only true → false"),
        ({"devices": ["/dev/a:/dev/a"]}, 'ray_node_devices [] → ["/dev/a:/dev/a"]'),
        ({"images": {"cpu": "other:1"}}, "cluster_images argus-verl-cpu:0.1.0 → other:1"),
        ({"network": "lab"}, "cluster_network mvp-ray → lab"),
        ({"network": "host", "address": "10.0.0.1"}, "cluster_network mvp-ray → host, ray_node_address - → 10.0.0.1"),
        ({"head_address": "h"}, "the head's address ray-head → h"),
        ({"shared_root": "/p"}, "shared_root /private → /p"),
        ({"python": "/opt/b/bin/python3"}, "ray_node_python - → /opt/b/bin/python3"),
        ({"groups": ["44"]}, 'ray_node_groups [] → ["44"]'),
        ({"port_base": 21000}, "cluster_port_base 20000 → 21000"),
        # Those of the head, or of nobody.
        ({"dashboard_port": 1}, ""),
        ({"address": "10.0.0.1"}, ""),
    ],
    ids=str,
)
def test_changed_settings_are_named_as_in_the_inventory(changes: dict[str, Any], expected: str) -> None:
    assert change(plan(), plan(**changes)) == expected
    one, other = (container_arguments(node)["labels"][SPECIFICATION_LABEL] for node in (plan(), plan(**changes)))
    assert bool(expected) == (one != other) or "python" in changes


def test_gpus_that_a_worker_shares() -> None:
    """One more worker on its machine."""
    before = plan(gpus_there=8, siblings=["worker-0"], accelerator="cuda")
    now = plan(gpus_there=8, siblings=["worker-0", "worker-1"], accelerator="cuda")
    assert change(head(), head(dashboard_port=1)) == "cluster_dashboard_port 8265 → 1"
    assert change(head(), head(head_address="other")) == change(plan(), plan()) == ""
    assert change(before, now) == "its GPUs [0, 1, 2, 3, 4, 5, 6, 7] → [0, 1, 2, 3], ray_node_gpus 8 → 4"


def test_values_of_the_environment_are_secret() -> None:
    before = plan(env={"KEPT": "k", "TOKEN": "planted-1", "OLD": "planted-2"})
    now = plan(env={"KEPT": "k", "TOKEN": "planted-3", "NEW": "planted-4"})
    assert change(before, now) == "ray_node_env NEW added, ray_node_env OLD removed, ray_node_env TOKEN changed"
    assert "planted" not in settings_label(before)


def test_label_of_somebody_else() -> None:
    for label in (None, "no json", "[]", "7", "[" * 100_000):
        assert changed_settings(label, settings_label(plan())) == ""
    stored = {**json.loads(settings_label(plan())), "ray_node_user": "\x1b[2J\n" + "x" * 100, "a\nb": {"deep": 1}}
    shown = changed_settings(json.dumps(stored), settings_label(plan()))
    assert shown == f'a b {{"deep": 1}} → -, ray_node_user \\x1b[2J {"x" * 52} → 1001:1002'
