# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of plays that work on machines.

Ansible evaluates these in its own process. What is imported here is there for the processes that run tasks, which
otherwise compile it again and again, 0.1 s a task: its loader of collections keeps no bytecode.
"""

from __future__ import annotations

from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import machines_of
from ansible_collections.argus.verl.plugins.plugin_utils.filters import cluster, preflight

# What most tasks of these plays call.
LOADED = (cluster, preflight)

FILTERS = {"machine_hosts": machines_of}
