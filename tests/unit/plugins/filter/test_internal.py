"""What is not for the playbooks of users says so where `ansible-doc --list` shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.argus.verl.plugins.filter import cluster

PLUGINS = Path(__file__).resolve().parents[4] / "plugins"
FILTERS = sorted(cluster.FilterModule().filters())
MODULES = [
    *("cluster_plan", "inventory_check", "legacy_ray"),
    *("machine_state", "program", "ray_node_drain", "report"),
]


def documentation(name: str) -> dict[str, Any]:
    file = PLUGINS / "filter" / f"{name}.yml"
    if file.exists():
        return dict(yaml.safe_load(file.read_text())["DOCUMENTATION"])
    text = (PLUGINS / "modules" / f"{name}.py").read_text()
    return dict(yaml.safe_load(text.partition('DOCUMENTATION = r"""')[2].partition('"""')[0]))


@pytest.mark.parametrize("name", [*FILTERS, *MODULES])
def test_it_is_marked_as_internal(name: str) -> None:
    found = documentation(name)
    assert found["short_description"].startswith("Internal: ")
    assert "argus.verl.internal" in found["extends_documentation_fragment"]
