# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: srun
short_description: Connects to a host of a Slurm job, by steps of the job
version_added: 0.2.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - Runs commands on a host of a running job, for sites without SSH to their hosts. A short step of the job
    (C(srun --overlap)) passes each of them on to the long step that the batch script has started, which runs it. So
    what a command leaves behind lasts as long as the job, and runs in the container of that step if it has one.
  - A command takes about 0.3 seconds longer than over an open SSH connection.
  - Files are copied through the input and the output of commands.
options:
  job:
    description:
      - The id of the job. The inventory plugin P(argus.verl.slurm#inventory) sets the variables of this option and of
        the next two.
    type: int
    required: true
    vars:
      - name: slurm_job_id
  node:
    description: The name of the host in Slurm.
    type: str
    required: true
    vars:
      - name: slurm_node
  component:
    description: The component of a heterogeneous job that has the host.
    type: int
    vars:
      - name: slurm_component
  python:
    description: A Python 3.9 or newer of the hosts themselves, outside of containers. It passes commands on.
    type: str
    default: python3
    vars:
      - name: slurm_python
  limit:
    description: How many seconds a command on the host may take. Afterwards the host counts as unreachable.
    type: int
    default: 3600
    vars:
      - name: ansible_node_timeout
notes:
  - Jobs run there as the same user. Facts, warnings, and other keys of results that Ansible acts on are removed. More
    than 16 MiB of output make a command fail.
  - C(become) is not supported. Nodes are processes of the user who has the job.
extends_documentation_fragment:
  - ansible.builtin.connection_pipelining
"""

import os
import shlex
import shutil
import subprocess
import time
from functools import partial

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection import ConnectionBase
from ansible_collections.argus.verl.plugins.module_utils.slurm.commands import passed_on
from ansible_collections.argus.verl.plugins.plugin_utils import copying, node_answer
from ansible_collections.argus.verl.plugins.plugin_utils.srun_exec import NOISE, Place, refusal

Answer = tuple[int, bytes, bytes]


class Connection(ConnectionBase):  # type: ignore[misc]
    """Commands in steps of a job."""

    transport = "argus.verl.srun"
    has_pipelining = True

    @property
    def _place(self) -> Place:
        return Place(
            job=int(self.get_option("job")),
            node=str(self.get_option("node")),
            component=self.get_option("component"),
            python=str(self.get_option("python")),
        )

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Answer:
        """Run a command on the host."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if self.become and sudoable:
            raise AnsibleError(f"become is not supported in a Slurm job: remove it for {self._place.node}")
        code, stdout, stderr = self._run(cmd, in_data)
        return code, node_answer.reduced(stdout), stderr

    def _run(self, command: str, in_data: bytes | None) -> Answer:
        place, limit = self._place, int(self.get_option("limit"))
        if not shutil.which("srun"):
            raise AnsibleConnectionFailure(f"{place.node}: there is no command srun here")
        line = node_answer.limited(shlex.join(place.command(self._play_context.executable, command)), limit)
        began = time.monotonic()
        done = subprocess.run(
            ["/bin/sh", "-c", line], input=in_data or b"", env=passed_on(os.environ), capture_output=True, check=False
        )
        said = NOISE.sub(b"", done.stderr)
        problem = refusal(place, done.returncode, done.stdout, said)
        if slow := node_answer.problem(done.returncode, done.stdout, limit, time.monotonic() - began):
            problem = f"{place.node}: {slow}"
        if problem:
            raise AnsibleConnectionFailure(problem)
        return done.returncode, done.stdout, said

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the controller to the host."""
        super().put_file(in_path, out_path)
        copying.put(partial(self._copied, out_path), in_path, out_path)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the host to the controller."""
        super().fetch_file(in_path, out_path)
        copying.fetch(partial(self._copied, in_path), in_path, out_path)

    def _copied(self, path: str, command: str, data: bytes | None) -> bytes:
        code, stdout, stderr = self._run(command, data)
        if code:
            raise AnsibleError(copying.not_copied(self._place.node, path, stderr))
        return stdout

    def reset(self) -> None:
        """There is nothing that stays open."""

    def close(self) -> None:
        self._connected = False
