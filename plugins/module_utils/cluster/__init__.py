# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster: its inventory, its machines, its nodes, and whether it is ready.

Inventory: `inventory` checks groups, names and variables before any host is touched.
Machines: `probe` reads a machine with `hardware`, `gpus`, `system`, `processes` and `engine`; the answer is a
`machine.Machine`, which the package preflight compares with what is expected. `programs` runs what may hang.
Ports: `ports` plans them from one number, `port_inventory` checks the plan of an inventory.
Nodes: `nodes` plans each Ray node, `container` derives its container and `process` its process, `actions` decides what
has to be done; `cluster_plan` does so for a whole cluster, and `disruption` lists the jobs that a run would end.
`report` shows whether the cluster is ready.

Callers: modules and actions. What the modules for machines import runs there with Python 3.9.
"""
