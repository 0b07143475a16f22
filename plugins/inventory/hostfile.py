# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: hostfile
short_description: A Ray cluster on the hosts of a hostfile
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - Reads a hostfile as C(mpirun), C(deepspeed) and wrappers of C(torchrun) use it, and makes it the inventory of a
    cluster, with the groups C(head), C(workers) and C(ray).
  - The first host gets the head, which never trains, and every host a worker.
  - A line is C(HOST), C(HOST slots=N), C(HOST:N) or C([IPV6-ADDRESS]:N). The slots are the GPUs of the worker,
    C(ray_node_gpus). A host that is repeated without slots has one for each line, as in the node file of PBS.
  - What follows C(#) is a comment. C(max_slots) is ignored. Everything else is an error; all are reported at once.
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [argus.verl.hostfile]
  hostfile:
    description:
      - The path of the hostfile, relative to the directory of this file. It may have environment variables of the
        controller, such as C($PBS_NODEFILE).
    type: str
    required: true
  runtime:
    description:
      - Where the nodes run. V(container) is for hosts with Docker, with the hosts' own network. V(process) is for hosts
        that are reached over SSH and have Ray themselves; set C(ray_node_python) for the group C(ray) then.
    type: str
    choices: [container, process]
    default: container
notes:
  - Variables for all hosts, such as C(ansible_user), belong in C(group_vars/) beside the file.
  - With V(runtime=container), a host that is given by its name needs a name that the controller can resolve.
"""

EXAMPLES = r"""
# inventories/mpi/hosts.yml, for the hostfile
#   gpu-0 slots=8
#   gpu-1 slots=8
plugin: argus.verl.hostfile
hostfile: /etc/mpi/hostfile

# Hosts without a container engine. group_vars/ray.yml: ray_node_python: /opt/verl/bin/python3
---
plugin: argus.verl.hostfile
hostfile: hostfile
runtime: process
"""

import os
from pathlib import Path

from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import findings_table
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import resolved
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.hostfile import inventory_of, parse
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import HEADS, NODES, WORKERS
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import CONTAINER, PROCESS

NODE_VARIABLES = {
    CONTAINER: {"cluster_network": "host"},
    PROCESS: {"ansible_connection": "argus.verl.ssh", "ray_node_runtime": PROCESS},
}


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]
    """Makes a hostfile the inventory of a cluster."""

    NAME = "argus.verl.hostfile"

    def verify_file(self, path: str) -> bool:
        return bool(super().verify_file(path)) and path.endswith((".yml", ".yaml"))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        runtime = self.get_option("runtime")
        file = Path(path).parent / os.path.expandvars(self.get_option("hostfile"))
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AnsibleParserError(f"{error}; correct hostfile in {path}") from error
        hosts, found = parse(text, file.name)
        placed, unreachable = inventory_of(hosts, runtime, file.name, resolved)
        if found or unreachable:
            raise AnsibleParserError(f"{file} cannot be used\n{findings_table([*found, *unreachable])}")
        for group in (NODES, HEADS, WORKERS):
            inventory.add_group(group)
        for group in (HEADS, WORKERS):
            inventory.add_child(NODES, group)
        for name, value in NODE_VARIABLES[runtime].items():
            inventory.set_variable(NODES, name, value)
        for host in placed:
            inventory.add_host(host.name, host.group)
            for name, value in host.variables.items():
                inventory.set_variable(host.name, name, value)
