# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: slurm
short_description: The hosts of a Slurm job
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Makes the allocation of a running Slurm job the groups C(head) and C(workers), children of C(ray). It runs
    C(squeue) and C(scontrol), of Slurm 22.05 or newer, so the controller is a host with Slurm's commands, such as a
    login node or the first host of the job.
  - The head is on the first host of the job, which is a worker as well. A heterogeneous job has the head on the first
    host of its first component, and workers on the hosts of the others.
  - Each worker has the GPUs, CPUs and memory that the job has of its host, in C(ray_node_gpus), C(ray_node_cpus) and
    C(slurm_memory_mib). The address is an IPv4 address of its name, if there is one.
  - Hosts are reached by steps of the job (P(argus.verl.srun#connection)), and nodes are processes
    (C(ray_node_runtime=process)). C(cluster_ends_at) is the end
    of the allocation.
  - Without a running job there are no hosts. The file has to end with C(slurm.yml) or C(slurm.yaml).
options:
  plugin:
    description: This plugin.
    type: str
    required: true
    choices: [argus.verl.slurm]
  job_id:
    description:
      - The id of the job. By default that of the job in which Ansible runs, or else of the one with O(job_name).
    type: int
    env:
      - name: SLURM_JOB_ID
  job_name:
    description: The name of this user's job, also of the one for which C(slurm_up.yml) asks. The newest one counts.
    type: str
    default: argus-verl
"""

EXAMPLES = r"""
# slurm.yml
plugin: argus.verl.slurm
"""

import os
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.plugin_utils.slurm import allocation, commands
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.allocation import Allocation, SlurmError

display = Display()


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]
    NAME = "argus.verl.slurm"

    def verify_file(self, path: str) -> bool:
        return bool(super().verify_file(path)) and path.endswith(("slurm.yml", "slurm.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        name = str(self.get_option("job_name"))
        for group in ("ray", "head", "workers"):
            inventory.add_group(group)
        for group in ("head", "workers"):
            inventory.add_child("ray", group)
        inventory.set_variable("all", "slurm_job_name", name)
        try:
            job = self._allocation(name)
            if job is not None:
                self._add_hosts(job)
        except SlurmError as error:
            raise AnsibleParserError(str(error)) from error

    def _allocation(self, name: str) -> Allocation | None:
        """The allocation of the job; None with a warning if there is no job, or it has no hosts. Raises SlurmError."""
        job_id = self.get_option("job_id") or commands.find_job_id(name)
        if job_id is None:
            display.warning(f"Slurm has no job {name} of this user. slurm_up.yml asks for one")
            return None
        job = commands.query_allocation(int(job_id))
        if job is None or not job.hosts:
            state = f"is {job.state} ({job.reason or 'no reason given'})" if job else "is not known any more"
            display.warning(f"Slurm's job {job_id} has no hosts: it {state}")
            return None
        return job

    def _add_hosts(self, job: Allocation) -> None:
        """Add the hosts of the job and all variables, and warn of hosts that Slurm takes out."""
        for name, value in allocation.group_variables(job, os.getuid()).items():
            self.inventory.set_variable("ray", name, value)
        self.inventory.set_variable("ray", "ansible_connection", "argus.verl.srun")
        for host in allocation.inventory_hosts(job):
            self.inventory.add_host(host.name, host.group)
            for name, value in host.variables.items():
                self.inventory.set_variable(host.name, name, value)
        for node in job.hosts:
            if node.leaving:
                display.warning(
                    f"Slurm's node {node.name} is {node.leaving}. Its jobs go on; "
                    f"drain.yml -e node={allocation.host_name(node.name)} takes it out of the cluster"
                )
