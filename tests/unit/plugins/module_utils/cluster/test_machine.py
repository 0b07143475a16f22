from __future__ import annotations

from dataclasses import replace

from samples import HEALTHY, container


def test_containers_of_a_cluster() -> None:
    there = {"ray-head": container(), "registry": container(None), "prod-head": container("prod")}
    machine = replace(HEALTHY, containers=there)
    assert machine.nodes == ["ray-head"]
    assert replace(machine, cluster="other").nodes == []
