from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Image
from ansible_collections.argus.verl.plugins.plugin_utils.filters.preflight import image_findings
from samples import HEALTHY, gpus

NODES = ["ray-head", "worker-0", "worker-1"]
CLUSTER = {"ray": NODES, "head": ["ray-head"], "workers": NODES[1:]}


def nodes_of(**others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables of all hosts, which are on one machine unless `others` has other values."""
    hostvars: dict[str, dict[str, Any]] = {name: {"ray_node_machine": "box"} for name in NODES}
    for name, changed in others.items():
        hostvars[name.replace("_", "-")] = {"ray_node_machine": "box", **changed}
    return hostvars


def answer_of(**changed: Any) -> dict[str, Any]:
    """The variables of a probed machine, as Ansible keeps them."""
    machine = replace(HEALTHY, **{"gpus": [], **changed})
    return {"__preflight": {"machine": json.loads(json.dumps(machine.to_json()))}}


def test_missing_images() -> None:
    kinds = {"cpu": "cpu:1", "cuda": "cuda:1"}
    there = {"cpu:1": Image("sha256:1", {}), "cuda:1": None}
    assert image_findings(NODES[:1], nodes_of(ray_head=answer_of(images=there)), CLUSTER, kinds) == []
    # One GPU makes it a cluster of the other kind.
    (finding,) = image_findings(NODES[:1], nodes_of(ray_head=answer_of(images=there, gpus=gpus(1))), CLUSTER, kinds)
    assert (finding["where"], finding["severity"]) == ("box", "error")
    assert finding["what"].startswith("the image cuda:1 is missing")
    # Without an image for the kind, and without a probed machine.
    assert (
        image_findings(NODES[:1], nodes_of(ray_head=answer_of(images=there, gpus=gpus(1))), CLUSTER, {"cpu": "cpu:1"})
        == []
    )
    assert image_findings([], nodes_of(ray_head=answer_of(images={"cpu:1": None})), CLUSTER, kinds) == []
