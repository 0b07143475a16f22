"""What is wrong with an inventory, before any host is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible_collections.argus.verl.plugins.action.inventory_check import inventory_findings, process_nodes
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import public_variables

REPO = Path(__file__).resolve().parents[4]
NODES = ["ray-head", "worker-0", "worker-1"]
GROUPS = {"ray": NODES, "head": ["ray-head"], "workers": NODES[1:]}
BOX = {"ray_node_machine": "box"}
PROCESS = {"ray_node_runtime": "process", "ray_node_python": "/opt/verl/bin/python3"}


def variables(**others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables of all nodes."""
    return {name: dict(BOX) for name in NODES} | {name.replace("_", "-"): own for name, own in others.items()}


def test_public_variables_include_all_defaults_of_the_roles() -> None:
    names = public_variables().keys()
    assert {"cluster_name", "ray_node_gpus", "shared_root", "staging_snapshots", "artifacts_dir"} <= names
    for defaults in (REPO / "roles").glob("*/defaults/main.yml"):
        assert names >= yaml.safe_load(defaults.read_text()).keys()


def test_an_unknown_variable_of_the_command_line_is_found_once() -> None:
    hostvars = variables()
    # Those of the command line are known, and results of earlier plays are none: one run may have several playbooks.
    known = ("tags", "retries", "model", "set", "submission_id", "jobspec", "__staging_models", "_cluster_nam")
    for host in hostvars:
        hostvars[host] |= dict.fromkeys(known, "x")
    assert inventory_findings(hostvars, GROUPS) == []
    for host in hostvars:
        hostvars[host]["shared_roots"] = "/x"
    (finding,) = inventory_findings(hostvars, GROUPS)
    assert (finding.where, finding.remedy) == ("all hosts", 'did you mean "shared_root"?')


def test_run_is_checked_with_the_inventory() -> None:
    found = inventory_findings(variables(), GROUPS, ["worker-0"], ["head"], ["/nowhere/hosts.yml"])
    assert [finding.where for finding in found] == ["group head", "/nowhere/hosts.yml"]


def test_variables_of_the_inventory_of_slurm_are_known() -> None:
    hostvars = variables(worker_0=PROCESS, worker_1={**PROCESS, "ansible_python_interpreter": "/usr/bin/python3"})
    assert process_nodes(hostvars, GROUPS) == ["worker-0"]
    own = {**BOX, "slurm_node": "gpu_0", "slurm_memory_mib": 8000}
    assert inventory_findings(variables(worker_0=own | {"slurm_nodes": 2}), GROUPS) == []
    (finding,) = inventory_findings(variables(worker_0=own | {"slurm_memroy": "8G"}), GROUPS)
    assert "slurm_memroy" in finding.problem and "slurm_memory" in finding.remedy
