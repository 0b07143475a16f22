# SPDX-License-Identifier: GPL-3.0-or-later
"""The public variables of the roles, from their argument specs, and the typed values that nodes have for them."""

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
# The roles whose variables each node has.
NODE_ROLES = ("cluster", "ray_node")


@functools.cache
def role_options(role: str, roles: Path = ROLES) -> dict[str, dict[str, Any]]:
    """The options of all entry points of a role, by name."""
    file = roles / role / "meta" / "argument_specs.yml"
    # PyYAML's loader in C, if it was built, is ten times as fast, and every playbook waits for it.
    loaded = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    entries = loaded["argument_specs"].values()
    return {name: option for entry in entries for name, option in entry.get("options", {}).items()}


@functools.cache
def public_variables(roles: Path = ROLES) -> dict[str, Any]:
    """All public variables of all roles by name, with their defaults."""
    names = [specification.parents[1].name for specification in roles.glob("*/meta/argument_specs.yml")]
    return {name: option.get("default") for role in names for name, option in role_options(role, roles).items()}


def node_variables(
    nodes: Iterable[str], hostvars: HostVars, run_values: Mapping[str, Any], roles: Sequence[str] = NODE_ROLES
) -> tuple[dict[str, Variables], list[Finding]]:
    """The typed variables of nodes, and what is wrong with them.

    run_values: the play's values, for nodes whose inventory sets none.
    """
    options = {name: option for role in roles for name, option in role_options(role).items()}
    validator = ArgumentSpecValidator(options)
    typed: dict[str, Variables] = {}
    problems: dict[str, list[str]] = {}
    defaults = {name: option["default"] for name, option in options.items() if "default" in option}
    for node in nodes:
        variables = hostvars[node]
        values = {name: variables[name] for name in options if name in variables}
        # A copy, as Ansible completes mappings in place, also those of the argument spec.
        result = validator.validate(plain({**defaults, **run_values, **values}))
        typed[node] = {"ansible_host": variables.get("ansible_host", ""), **result.validated_parameters}
        for message in result.error_messages:
            problems.setdefault(message, []).append(node)
    remedy = "correct it in the inventory; the roles' READMEs have all variables"
    return typed, [Finding(", ".join(names), message, remedy) for message, names in problems.items()]


def play_variables(
    variables: Mapping[str, Any], templar: Any, roles: Sequence[str] = NODE_ROLES
) -> tuple[dict[str, Variables], list[Finding]]:
    """The typed variables of all nodes in a play, and what is wrong with them.

    The play's values count for nodes whose inventory sets none: all variables of the role `cluster`, and of the other
    roles those that the inventory does not set for the host of this task. templar: Ansible's.
    """
    host = variables["hostvars"][variables["inventory_hostname"]]
    unset = (name for role in roles for name in role_options(role) if name not in host)
    names = dict.fromkeys([*role_options("cluster"), *unset])
    run_values = {name: templar.template(variables[name]) for name in names if name in variables}
    return node_variables(cluster_nodes(variables["groups"]), variables["hostvars"], run_values, roles)


def plain(value: Any) -> Any:
    """A value without Ansible's lazy containers, which cannot be copied."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
