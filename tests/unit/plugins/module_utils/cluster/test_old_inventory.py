"""An inventory of the form with a group of machines is refused with the lines to write instead."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.argus.verl.plugins.module_utils.cluster.old_inventory import (
    new_form,
    old_form,
    old_form_finding,
)

NODE = {"ansible_connection": "argus.verl.node", "ansible_python_interpreter": "python3"}
GROUPS = {"machines": ["ctl-0", "gpu-0"], "ray": ["head", "w0", "w1"], "head": ["head"], "workers": ["w0", "w1"]}


def written(machines: dict[str, Any], nodes: dict[str, Any]) -> dict[str, Any]:
    """The new inventory of these hosts, as YAML."""
    hostvars = {**machines, **{node: {**NODE, **own} for node, own in nodes.items()}}
    assert old_form(hostvars, GROUPS)
    loaded = yaml.safe_load("\n".join(new_form(hostvars, GROUPS)))
    assert isinstance(loaded, dict)
    return dict(loaded["ray"])


def test_machines_over_ssh() -> None:
    ssh = {"ansible_user": "ml", "ansible_port": 2222, "ansible_version": {"full": "2.19"}}
    found = written(
        {
            "ctl-0": {"ansible_host": "10.0.0.10", "preflight_gpus": 0, **ssh},
            "gpu-0": {"ansible_host": "10.0.0.11", **ssh, "preflight_gpus": 8},
        },
        {
            "head": {"ray_node_machine": "ctl-0", "ray_node_address": "10.0.0.10", "preflight_gpus": 8},
            "w0": {"ray_node_machine": "gpu-0", "ray_node_address": "192.168.0.11", "preflight_gpus": 8},
            "w1": {"ray_node_machine": "gpu-0", "preflight_gpus": 8},
        },
    )
    shared = {"ansible_host": "10.0.0.11", "ray_node_machine": "gpu-0"}
    assert found["children"]["head"]["hosts"] == {"head": {"ansible_host": "10.0.0.10", "preflight_gpus": 0}}
    assert found["children"]["workers"]["hosts"] == {
        "w0": {**shared, "ray_node_address": "192.168.0.11"},
        "w1": shared,
    }
    assert found["vars"] == {"ansible_user": "ml", "ansible_port": 2222}


def test_this_machine() -> None:
    local = {"ansible_connection": "local", "ansible_become_password": "secret: word"}
    found = written({"ctl-0": local, "gpu-0": local}, {node: {"ray_node_machine": "ctl-0"} for node in GROUPS["ray"]})
    assert found["children"]["workers"]["hosts"] == {"w0": None, "w1": None}
    # It is not shown.
    assert found["vars"] == {"ansible_connection": "local", "ansible_become_password": "as before"}


def test_machine_without_an_address_is_reached_at_its_name() -> None:
    nodes = {node: {"ray_node_machine": "gpu-0"} for node in GROUPS["ray"]}
    assert written({"ctl-0": {}, "gpu-0": {}}, nodes)["vars"] == {"ansible_host": "gpu-0", "ray_node_machine": "gpu-0"}


@pytest.mark.parametrize(
    ("groups", "connection", "what"),
    [
        (GROUPS, "ssh", "the group machines has hosts"),
        ({**GROUPS, "machines": []}, "argus.verl.node", "ansible_connection is argus.verl.node"),
        (GROUPS, "argus.verl.node", "the group machines has hosts and ansible_connection is argus.verl.node"),
    ],
)
def test_what_is_left_of_the_old_form(groups: dict[str, list[str]], connection: str, what: str) -> None:
    hostvars: dict[str, Any] = {host: {} for host in ("ctl-0", "gpu-0")}
    hostvars |= {node: {"ansible_connection": connection} for node in GROUPS["ray"]}
    assert old_form_finding(old_form(hostvars, groups)).what == what


def test_new_form_is_none_of_it() -> None:
    hostvars = {node: {"ansible_connection": "local"} for node in GROUPS["ray"]}
    assert not old_form(hostvars, {**GROUPS, "machines": []})
