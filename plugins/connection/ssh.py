# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: ssh
short_description: Hosts over SSH on which jobs run as the user of Ansible
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - P(ansible.builtin.ssh#connection), with the same options, for nodes that are processes. Jobs run on their hosts as
    the user as whom Ansible logs in, and can change what a module answers.
  - Facts, warnings, and other keys of results that Ansible acts on are removed. More than 16 MiB of output make a
    command fail.
options:
  limit:
    description: How many seconds a command on the host may take. Afterwards the host counts as unreachable.
    type: int
    default: 3600
    vars:
      - name: ansible_node_timeout
extends_documentation_fragment:
  - argus.verl.ssh
  - ansible.builtin.connection_pipelining
"""

EXAMPLES = r"""
# Hosts of a platform, in the group ray.
ray:
  hosts:
    gpu-0: {ansible_host: 10.0.0.21}
  vars:
    ansible_connection: argus.verl.ssh
    ray_node_runtime: process
"""

import shlex
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.ssh import Connection as Ssh
from ansible_collections.argus.verl.plugins.plugin_utils import streams


class Connection(Ssh):  # type: ignore[misc]
    """Ansible's connection over SSH, with limits for commands; keys that Ansible acts on are removed from answers."""

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        limit, began = int(self.get_option("limit")), time.monotonic()
        shell = shlex.join(["/bin/sh", "-c", cmd])
        line = streams.limited_command(shell, limit, bool(self.become and sudoable))
        code, stdout, stderr = super().exec_command(line, in_data=in_data, sudoable=sudoable)
        if problem := streams.limit_problem(code, stdout, limit, time.monotonic() - began):
            raise AnsibleConnectionFailure(f"{self.host}: {problem}. Jobs run there: look for one that hinders it")
        return code, streams.without_keys_acted_on(stdout), stderr
