"""The hosts of plays that work on machines."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.filter.cluster import FilterModule

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


def test_inventory_without_hosts_and_a_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible would skip all plays, and succeed."""
    validated_hosts = FILTERS["validated_hosts"]
    # A play on the controller names the problem. Slurm has given no hosts yet.
    assert (validated_hosts({"all": []}, ["x"]), validated_hosts({"all": []}, ["x"], True)) == ("localhost", "all")
    monkeypatch.setattr("ansible.context.CLIARGS", {"subset": "gpu-0"})
    assert validated_hosts({"all": ["box"]}, ["x"]) == "all"
    for sources, problem in ((["a,b", "/absent"], "/absent does not exist"), (["a,"], "a, has no hosts")):
        with pytest.raises(AnsibleFilterError, match=f"inventory {problem}"):
            validated_hosts({"all": []}, sources)
