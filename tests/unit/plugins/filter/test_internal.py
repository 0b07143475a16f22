"""What is not for the playbooks of users says so where `ansible-doc --list` shows it."""

from __future__ import annotations

import subprocess
import sys
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


def test_every_filter_has_its_documentation() -> None:
    assert sorted(file.stem for file in (PLUGINS / "filter").glob("*.yml")) == FILTERS


def test_filters_import_nothing_of_the_collection_before_they_are_called() -> None:
    program = f"import sys, {cluster.__name__}\n"
    program += "print(*[name for name in sys.modules if '.module_utils.' in name and 'argus' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
