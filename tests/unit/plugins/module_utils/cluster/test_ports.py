from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.argus.verl.plugins.module_utils.cluster.ports import (
    PortPlan,
    PortRange,
    dashboard_port,
)
from jinja2 import Template

DEFAULTS = Path(__file__).resolve().parents[5] / "roles" / "cluster" / "defaults" / "main.yml"


@pytest.mark.parametrize(
    ("base", "number", "moved"), [(6379, 1, "--dashboard-port"), (8100, 1, "--ray-client-server-port")]
)
def test_defaults_of_ray_that_are_in_the_plan_of_a_worker(base: int, number: int, moved: str) -> None:
    """Ray refuses the ports of worker processes if one of them is its default for what only a head has."""
    assert [option for option in PortPlan(base, number).options() if option == f"{moved}={base}"]
    assert not [option for option in PortPlan(base, number + 3).options() if option.startswith(moved)]


def test_ranges_are_what_the_options_and_variables_set() -> None:
    for number in (0, 1):
        plan = PortPlan(20000, number)
        *single, workers = plan.ranges("n")
        assert all(ports.first == ports.last for ports in single)
        set_by = [option.partition("=")[2] for option in plan.options()[:-2]] + list(plan.environment().values())
        set_by += ["20005"] * plan.head
        assert sorted(str(ports.first) for ports in single) == sorted(set_by)
        assert len({str(ports.first) for ports in single}) == len(single)
        assert workers == PortRange("n", "worker processes", plan.first + 20, plan.last)
    assert single[0] == PortRange("n", "raylet", 21010, 21010)


@pytest.mark.parametrize(("base", "port"), [(20000, 8265), (20001, 20005), (30000, 30004)])
def test_port_of_the_dashboard(base: int, port: int) -> None:
    assert dashboard_port(base) == port
    default = yaml.safe_load(DEFAULTS.read_text())["cluster_dashboard_port"]
    assert Template(default).render(cluster_port_base=str(base)) == str(port)
    # With another base it has a place of its own in the plan.
    planned = {ports.first for ports in PortPlan(base, 0).ranges("head")}
    assert port not in planned
