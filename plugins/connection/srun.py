# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: srun
short_description: Connects to a host of a Slurm job, by steps of the job
version_added: 0.1.0
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

import inspect
import os
import re
import shlex
import shutil
import subprocess
import time
from functools import partial

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection import ConnectionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line
from ansible_collections.argus.verl.plugins.module_utils.slurm import relay
from ansible_collections.argus.verl.plugins.plugin_utils import streams
from ansible_collections.argus.verl.plugins.plugin_utils.slurm.commands import step_environment

# Exit code, standard output and standard error of a command.
Answer = tuple[int, bytes, bytes]
# Messages of srun that say nothing about a command: one follows each that fails, one tells that a site binds no CPUs.
NOISE = re.compile(
    rb"^srun: (?:cluster configuration lacks support for cpu binding|error: \S+: task 0: .*)\n?", re.MULTILINE
)
# A message of srun about a job that has ended.
JOB_ENDED = re.compile(r"Invalid job id|has expired|Job/step already completing")
# A message of srun, or of its step, that ran no command or lost the host.
REFUSED = re.compile(r"^(?:(?:srun|slurmstepd\S*): error|argus\.verl): .*$", re.MULTILINE)
# The program that a short step runs: it passes a command on to the long step of the batch script.
RELAY = inspect.getsource(relay)
MAX_REASON_CHARS = 400


class Connection(ConnectionBase):  # type: ignore[misc]
    """Runs commands and copies files in steps of a Slurm job."""

    transport = "argus.verl.srun"
    has_pipelining = True

    @property
    def _node(self) -> str:
        return str(self.get_option("node"))

    def _argv(self, command: str) -> list[str]:
        """The command line of srun that runs a command on the host, with the same standard input."""
        job, component = str(self.get_option("job")), self.get_option("component")
        component_option = [] if component is None else [f"--het-group={component}"]
        target = [f"--jobid={job}", *component_option, "--nodes=1", "--ntasks=1", f"--nodelist={self._node}"]
        # The step itself takes no CPUs and no memory of the host.
        options = ["--overlap", "--cpu-bind=none", "--mem=0", "--quiet", "--chdir=/"]
        relayed = [str(self.get_option("python")), "-I", "-c", RELAY, job]
        return ["srun", *target, *options, *relayed, self._play_context.executable, "-c", command]

    def _refusal(self, code: int, stdout: bytes, stderr: bytes) -> str:
        """Why Slurm ran no command, or lost the host; empty if the command ran, even if it failed."""
        if not code or stdout:
            # Output is that of a module, which therefore ran.
            return ""
        message, job = stderr.decode(errors="replace"), self.get_option("job")
        if JOB_ENDED.search(message):
            return f"{self._node}: Slurm's job {job} has ended. slurm_up.yml asks for another one"
        match = REFUSED.search(message)
        return f"{self._node}: no step in Slurm's job {job}: {one_line(match[0])[:MAX_REASON_CHARS]}" if match else ""

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Answer:
        """Run a command on the host."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if self.become and sudoable:
            raise AnsibleError(f"become is not supported in a Slurm job: remove it for {self._node}")
        code, stdout, stderr = self._run(cmd, in_data)
        return code, streams.without_keys_acted_on(stdout), stderr

    def _run(self, command: str, in_data: bytes | None) -> Answer:
        """Run a command on the host, and return its answer. Raises AnsibleConnectionFailure if Slurm did not run it."""
        limit = int(self.get_option("limit"))
        if not shutil.which("srun"):
            raise AnsibleConnectionFailure(f"{self._node}: there is no command srun here")
        line = streams.limited_command(shlex.join(self._argv(command)), limit)
        began = time.monotonic()
        environ = step_environment(os.environ)
        result = subprocess.run(
            ["/bin/sh", "-c", line], input=in_data or b"", env=environ, capture_output=True, check=False
        )
        message = NOISE.sub(b"", result.stderr)
        problem = self._refusal(result.returncode, result.stdout, message)
        if slow := streams.limit_problem(result.returncode, result.stdout, limit, time.monotonic() - began):
            problem = f"{self._node}: {slow}"
        if problem:
            raise AnsibleConnectionFailure(problem)
        return result.returncode, result.stdout, message

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the controller to the host."""
        super().put_file(in_path, out_path)
        streams.put_file(partial(self._run_copy, out_path), in_path, out_path)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the host to the controller."""
        super().fetch_file(in_path, out_path)
        streams.fetch_file(partial(self._run_copy, in_path), in_path, out_path)

    def _run_copy(self, path: str, command: str, data: bytes | None) -> bytes:
        code, stdout, stderr = self._run(command, data)
        if code:
            raise AnsibleError(streams.copy_error(self._node, path, stderr))
        return stdout

    def reset(self) -> None:
        """Nothing stays open between commands."""

    def close(self) -> None:
        self._connected = False
