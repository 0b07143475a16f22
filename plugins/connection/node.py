# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node
short_description: Connects into the container of a Ray node, by way of its machine
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - Runs commands in the container of a node with C(docker exec) or C(podman exec) on the machine that
    runs the container.
  - The machine is reached as Ansible reaches it for every other task, with its own connection plugin and its own
    connection variables, which are those of the machine in the inventory, such as C(ansible_host), C(ansible_user),
    C(ansible_port), C(ansible_ssh_private_key_file), C(ansible_ssh_common_args) or C(ansible_connection=local).
    With SSH, both share one open connection.
  - If C(ansible_become) is true for the machine, the engine's command runs with these rights.
  - The controller needs no container engine.
options:
  machine:
    description: The machine that runs the container, a host of the inventory other than the node.
    type: str
    vars:
      - name: ray_node_machine
  engine:
    description:
      - The container engine on the machine, V(docker), V(podman) or the absolute path of one. By default the value of
        C(cluster_engine) in the inventory.
    type: str
    default: docker
    vars:
      - name: cluster_engine
      - name: ansible_node_engine
  remote_user:
    description: The user in the container, as a name or a number. By default the user of the container.
    type: str
    vars:
      - name: ansible_node_user
  limit:
    description:
      - How many seconds a command in the node may take. Afterwards the node counts as unreachable. Whatever may take
        longer, such as staging, is detached and asked for its state.
    type: int
    default: 600
    vars:
      - name: ansible_node_timeout
notes:
  - Jobs can change what comes out of their nodes. Facts, warnings, and other keys of results that Ansible acts on are
    removed. More than 16 MiB of output make a command fail.
  - The container has the name of the host in the inventory. C(ansible_host), C(ansible_user) and the like of the node
    itself have no effect.
  - Set connection variables and C(ansible_become) for the group C(machines), not for all hosts. C(become) for a node
    is a matter of the programs in its image, which usually has no C(sudo).
  - Only variables of the inventory and of the command line are known for the machine, not those of a play.
extends_documentation_fragment:
  - ansible.builtin.connection_pipelining
"""

EXAMPLES = r"""
# An inventory. The container ray-worker-0 is reached by way of gpu-0, whose user, port and jump host are used.
machines:
  hosts:
    gpu-0: {ansible_host: 10.0.0.11}
  vars: {ansible_user: ml, ansible_port: 2222, ansible_ssh_common_args: -o ProxyJump=bastion}
ray:
  children:
    workers:
      hosts:
        ray-worker-0: {ray_node_machine: gpu-0}
  vars: {ansible_connection: argus.verl.node, ansible_python_interpreter: python3}
"""

import copy
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from ansible import constants as C  # noqa: N812
from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleValueOmittedError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.loader import become_loader, connection_loader
from ansible_collections.argus.verl.plugins.plugin_utils import copying, node_answer
from ansible_collections.argus.verl.plugins.plugin_utils.engine_exec import (
    LOST_REASON,
    Place,
    escalation_in_node,
    escalation_problem,
    refusal,
    unreachable,
    wrong_engine,
)

Variables = Mapping[str, Any]
Answer = tuple[int, bytes, bytes]
# Not an option: results of delegated tasks contain the variables of all options.
HOSTVARS = "hostvars"
# A terminal would change bytes.
NO_TERMINAL = {"ansible_ssh_use_tty": False}


class Connection(ConnectionBase):  # type: ignore[misc]
    """Commands in a container, which the connection of its machine runs."""

    transport = "argus.verl.node"
    has_pipelining = True

    def __init__(self, play_context: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(play_context, *args, **kwargs)
        # A shell belongs to one connection.
        self._loaded_with = {name: value for name, value in kwargs.items() if name != "shell"}
        self._hostvars: Mapping[str, Variables] = {}
        self._task_keys: dict[str, Any] = {}
        self._node = ""
        self._machine_connection: Any = None

    def _resolve_option_variables(self, variables: dict[str, Any], templar: Any) -> dict[str, Any]:
        """Ansible's own, and the variables of all hosts, which include those of the machine."""
        return {**super()._resolve_option_variables(variables, templar), **picked(variables, (HOSTVARS, *NAMES))}

    def set_options(
        self,
        task_keys: dict[str, Any] | None = None,
        var_options: dict[str, Any] | None = None,
        direct: dict[str, Any] | None = None,
    ) -> None:
        var_options = dict(var_options or {})
        self._task_keys = task_keys or {}
        self._hostvars = var_options.pop(HOSTVARS, {})
        self._node, delegated = str(var_options.get("inventory_hostname", "")), self._task_keys.get("delegate_to")
        if delegated:
            # inventory_hostname is then that of the host that delegates, also in templates.
            self._node = str(delegated)
            names = C.config.get_plugin_vars("connection", self._load_name)
            var_options = picked(self._hostvars[self._node], names) if self._node in self._hostvars else {}
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self._machine_connection = None

    @property
    def _place(self) -> Place:
        machine, user = (str(self.get_option(name) or "") for name in ("machine", "remote_user"))
        return Place(self._node, machine or self._node, str(self.get_option("engine")), user)

    def _connect(self) -> Connection:
        """Nothing is connected yet: the connection of the machine does so when it runs a command."""
        self._connected = True
        return self

    def _machine(self) -> Any:
        """The connection of the machine, as Ansible would make it for a task there."""
        if self._machine_connection is None:
            place = self._place
            if place.machine not in self._hostvars:
                raise AnsibleError(
                    f"ray_node_machine of {place.node} is {place.machine}, which is not in the inventory"
                )
            variables = self._hostvars[place.machine]
            plugin = str(variables.get("ansible_connection") or self._task_keys.get("connection") or "ssh")
            if place.machine == place.node or plugin == self._load_name:
                todo = "Set ray_node_machine to a host of the group machines, and this connection for nodes only"
                raise AnsibleError(f"{place.node} has no machine whose connection leads to it. {todo}")
            self._machine_connection = self._loaded(plugin, place.machine, variables)
        return self._machine_connection

    def _loaded(self, plugin: str, machine: str, variables: Variables) -> Any:
        context = context_of(self._play_context, machine, variables)
        connection = connection_loader.get(plugin, context, **self._loaded_with)
        if connection is None:
            raise AnsibleError(f"{machine} has an unknown ansible_connection: {plugin}")
        options = options_of("connection", connection, variables) | NO_TERMINAL
        # As ansible-core does. The keywords of a task, such as remote_user, are about SSH and not about containers.
        keys = {**self._task_keys, "timeout": context.timeout}
        if context.password:
            keys["password"] = context.password
        connection.set_options(task_keys=keys, var_options=options)
        connection._shell.set_options(var_options=options_of("shell", connection._shell, variables))
        if boolean(variables.get("ansible_become") or False):
            connection.set_become_plugin(become_of(machine, variables, context))
        return connection

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Answer:
        """Run a command in the container."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        code, stdout, stderr = self._run(cmd, in_data, sudoable)
        return code, node_answer.reduced(stdout), stderr

    def _run(self, command: str, in_data: bytes | None, sudoable: bool) -> Answer:
        place, machine, limit = self._place, self._machine(), int(self.get_option("limit"))
        if problem := wrong_engine(place):
            raise AnsibleError(problem)
        line = node_answer.limited(place.command(self._play_context.executable, command), limit, bool(self.become))
        escalates = boolean(self._hostvars[place.machine].get("ansible_become") or False)
        if escalates:
            line = machine.become.build_become_command(line, machine._shell)
        else:
            # What a become plugin of the node asks for is answered on the way.
            machine.set_become_plugin(self.become)
        began = time.monotonic()
        try:
            code, stdout, stderr = machine.exec_command(line, in_data=in_data, sudoable=escalates or sudoable)
        except AnsibleError as error:
            raise self._failure(error, escalates) from None
        problem = refusal(place, code, stdout, stderr) or self._missing_in_node(code, stderr)
        if slow := node_answer.problem(code, stdout, limit, time.monotonic() - began):
            problem = f"{place.node}: {slow}. Jobs run in it: look for one that hinders it, or restart its container"
        if problem:
            raise AnsibleConnectionFailure(problem)
        if escalates and sudoable and self.become and self.become.success:
            stdout = self.become.strip_become_success(stdout)
        return code, stdout, stderr

    def _missing_in_node(self, code: int, said: bytes | str) -> str:
        return escalation_in_node(self._place, self.become.name, said) if code and self.become else ""

    def _failure(self, error: AnsibleError, escalates: bool) -> AnsibleError:
        """An error of the machine's connection, with what it means for the node."""
        place, text = self._place, str(error)
        # Engines answer 255 as well, and say so before sudo or ssh does.
        problem = refusal(place, 1, "", text)
        problem = problem or (escalation_problem(place, text) if escalates else self._missing_in_node(1, text))
        if problem:
            return AnsibleConnectionFailure(problem)
        if isinstance(error, AnsibleConnectionFailure):
            return AnsibleConnectionFailure(unreachable(place, self._lost_reason() if LOST_REASON in text else text))
        return AnsibleError(f"{place.node} on {place.machine}: {text}")

    def _lost_reason(self) -> str:
        try:
            self._machine().exec_command("true", sudoable=False)
        except AnsibleConnectionFailure as error:
            return str(error)
        return "it broke; run it again"

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the controller into the container."""
        super().put_file(in_path, out_path)
        copying.put(partial(self._copied, out_path), in_path, out_path)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the container to the controller."""
        super().fetch_file(in_path, out_path)
        copying.fetch(partial(self._copied, in_path), in_path, out_path)

    def _copied(self, path: str, command: str, data: bytes | None) -> bytes:
        code, stdout, stderr = self._run(command, data, sudoable=False)
        if code:
            raise AnsibleError(copying.not_copied(self._place.node, path, stderr))
        return stdout

    def reset(self) -> None:
        """Close the connection to the machine that stays open between tasks."""
        self._machine().reset()
        self.close()

    def close(self) -> None:
        if self._machine_connection is not None:
            self._machine_connection.close()
        self._connected = False


NAMES = ("inventory_hostname",)


def picked(variables: Variables, names: Any) -> dict[str, Any]:
    """Those of the variables that there are."""
    found = {}
    for name in names:
        if name in variables:
            try:
                found[name] = variables[name]
            except AnsibleValueOmittedError:
                continue
    return found


def options_of(kind: str, plugin: Any, variables: Variables) -> dict[str, Any]:
    return picked(variables, C.config.get_plugin_vars(kind, plugin._load_name))


def context_of(given: Any, machine: str, variables: Variables) -> Any:
    """The play context of a task on the machine, which some connection plugins still read."""
    context = copy.copy(given)
    context.remote_addr, context.port = machine, None
    for attribute, names in C.MAGIC_VARIABLE_MAPPING.items():
        for value in picked(variables, names).values():
            setattr(context, attribute, value)
    return context


def become_of(machine: str, variables: Variables, context: Any) -> Any:
    method = str(variables.get("ansible_become_method") or C.DEFAULT_BECOME_METHOD)
    plugin = become_loader.get(method)
    if plugin is None:
        raise AnsibleError(f"{machine} has an unknown ansible_become_method: {method}")
    # Asked for with -K.
    keys = {"become_pass": context.become_pass} if context.become_pass else {}
    plugin.set_options(task_keys=keys, var_options=options_of("become", plugin, variables))
    return plugin
