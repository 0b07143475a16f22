# SPDX-License-Identifier: GPL-3.0-or-later
"""The public variables of the roles, by their argument specs, and the values that nodes have for them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import HostVars, Variables, cluster_nodes

ROLES = Path(__file__).resolve().parents[2] / "roles"
# The roles whose variables a node has.
OF_NODES = ("cluster", "ray_node")


@functools.cache
def role_options(role: str, roles: Path = ROLES) -> dict[str, dict[str, Any]]:
    """The options of all entry points of a role, by their names."""
    file = roles / role / "meta" / "argument_specs.yml"
    # The loader in C is ten times as fast, where there is one; every playbook waits for this.
    loaded = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    entries = loaded["argument_specs"].values()
    return {name: option for entry in entries for name, option in entry.get("options", {}).items()}


@functools.cache
def public_variables(roles: Path = ROLES) -> dict[str, Any]:
    """The defaults of all public variables by name."""
    names = [specification.parents[1].name for specification in roles.glob("*/meta/argument_specs.yml")]
    return {name: option.get("default") for role in names for name, option in role_options(role, roles).items()}


def node_variables(
    nodes: Iterable[str], hostvars: HostVars, run_values: Mapping[str, Any], roles: Sequence[str] = OF_NODES
) -> tuple[dict[str, Variables], list[Finding]]:
    """The typed variables of nodes, and what is wrong with them.

    run_values: the values of a node that does not set them, as the play has them.
    """
    options = {name: option for role in roles for name, option in role_options(role).items()}
    validator = ArgumentSpecValidator(options)
    typed: dict[str, Variables] = {}
    problems: dict[str, list[str]] = {}
    defaults = {name: option["default"] for name, option in options.items() if "default" in option}
    for node in nodes:
        variables = hostvars[node]
        values = {name: variables[name] for name in options if name in variables}
        # Ansible completes mappings in their place, also those of the specification.
        result = validator.validate(plain({**defaults, **run_values, **values}))
        typed[node] = {"ansible_host": variables.get("ansible_host", ""), **result.validated_parameters}
        for message in result.error_messages:
            problems.setdefault(message, []).append(node)
    remedy = "correct it in the inventory; the roles' READMEs have all variables"
    return typed, [Finding(", ".join(names), message, remedy) for message, names in problems.items()]


def play_variables(
    variables: Mapping[str, Any], templar: Any, roles: Sequence[str] = OF_NODES
) -> tuple[dict[str, Variables], list[Finding]]:
    """The typed variables of all nodes in a play, and what is wrong with them.

    Defaults of roles and variables of the play are for nodes whose inventory has none: those of the cluster, and those
    of nodes that are not from the inventory of the host that runs the task.
    """
    host = variables["hostvars"][variables["inventory_hostname"]]
    missing = (name for role in roles for name in role_options(role) if name not in host)
    names = dict.fromkeys([*role_options("cluster"), *missing])
    run_values = {name: templar.template(variables[name]) for name in names if name in variables}
    return node_variables(cluster_nodes(variables["groups"]), variables["hostvars"], run_values, roles)


def plain(value: Any) -> Any:
    """A value of Ansible's variables without its lazy containers, which cannot be copied."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
