"""The hosts of plays that work on machines."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from ansible_collections.argus.verl.plugins.filter.machines import FilterModule
from ansible_collections.argus.verl.plugins.plugin_utils.deferred import PACKAGE

GROUPS = {"ray": ["head", "worker-0", "worker-1"]}
FILTERS = FilterModule().filters()


def test_a_machine_is_represented_by_its_first_node_in_the_run() -> None:
    hostvars: dict[str, Any] = {node: {"ansible_connection": "local"} for node in GROUPS["ray"]}
    machine_hosts = FILTERS["machine_hosts"]
    assert machine_hosts(GROUPS, hostvars, GROUPS["ray"]) == ["head"]
    assert machine_hosts(GROUPS, hostvars, ["worker-1"]) == ["worker-1"]
    hostvars["worker-0"] = {"ansible_host": "10.0.0.2"}
    assert machine_hosts(GROUPS, hostvars, GROUPS["ray"]) == ["head", "worker-0"]
    assert machine_hosts({}, {}, []) == []
    # In the first play of a run.
    assert machine_hosts(GROUPS, {}, []) == GROUPS["ray"]


def test_it_loads_what_the_tasks_of_these_plays_call() -> None:
    program = f"import sys; import {PACKAGE}.machines; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {f"{PACKAGE}.cluster", f"{PACKAGE.rpartition('.')[0]}.preflight"} <= set(done.stdout.split())
