# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line with which a user of the controller opens a shell in the node of a job's driver."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .node_command import Node

# Variables of Ansible, and the options of ssh for them.
SSH_OPTIONS = {"ansible_port": "-p", "ansible_user": "-l", "ansible_ssh_private_key_file": "-i"}


def shell_line(submission_id: str, host: str, head: Node, variables: Mapping[str, Any]) -> str:
    """The command line for a job. host: the node with its driver. variables: Ansible's, for this host."""
    directory = head.directory and f"{head.directory.rpartition('/')[0]}/{host}"
    line = replace(head, name=host, directory=directory).in_node_command("shell", submission_id, terminal=True)
    line = f"sudo {line}" if variables.get("ansible_become") and not directory else line
    connection = str(variables.get("ansible_connection", "ssh"))
    if connection == "local":
        return line
    if connection.endswith("srun"):
        component = variables.get("slurm_component")
        part = [] if component is None else [f"--het-group={component}"]
        target = [f"--jobid={variables['slurm_job_id']}", *part, f"--nodelist={variables['slurm_node']}"]
        return shlex.join(["srun", *target, "--overlap", "--pty", "/bin/sh", "-c", line])
    arguments = [str(variables.get(f"ansible_ssh_{name}_args") or "") for name in ("common", "extra")]
    options = [
        word
        for name, option in SSH_OPTIONS.items()
        if variables.get(name) is not None
        for word in (option, str(variables[name]))
    ]
    words = [*shlex.split(" ".join(arguments)), *options, str(variables.get("ansible_host") or host)]
    return shlex.join(["ssh", "-t", *words, line])
