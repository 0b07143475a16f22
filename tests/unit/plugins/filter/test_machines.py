"""The hosts of plays that work on machines."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.argus.verl.plugins.filter.machines import FilterModule
from ansible_collections.argus.verl.plugins.plugin_utils.deferred import PACKAGE

NODES = ["head", "worker-0"]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [({"machines": ["m"], "ray": NODES}, ["m"]), ({"machines": [], "ray": NODES}, NODES), ({"ray": NODES}, NODES)],
)
def test_machines_or_else_nodes(groups: dict[str, list[str]], expected: list[str]) -> None:
    assert FilterModule().filters()["machine_hosts"](groups) == expected


def test_it_loads_what_the_tasks_of_these_plays_call() -> None:
    program = f"import sys; import {PACKAGE}.machines; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {f"{PACKAGE}.cluster", f"{PACKAGE}.preflight"} <= set(done.stdout.split())
