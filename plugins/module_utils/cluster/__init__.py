# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster: its inventory, its machines, its nodes, and whether it is ready.

Inventory: `inventory` checks groups, names and variables before any host is touched.
Machines: `probe` reads a machine with the parsers of `hardware`, `mounts` and `engine`; the answer is a
`machine.Machine`, which the package preflight compares with what is expected, with the help of `port_checks`,
`devices` and `images`. `programs` runs what may hang.
Ports: `ports` plans them from one number, `port_inventory` checks the plan of an inventory, `local_ports` parses those
of a machine.
Nodes: `nodes` plans each Ray node, `container` derives its container, `actions` decides what has to be done;
`cluster_plan` collects that for a run, and `disruption` lists the jobs that it would end.
`report` shows whether the cluster is ready.

Callers: the modules machine_info and machine_state, and the filters of plugin_utils/filters.
What machine_info and machine_state import runs on machines with Python 3.9.
"""
