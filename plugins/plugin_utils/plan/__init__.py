# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a cluster, decided on the controller from the inventory and the probed machines.

`container` derives the container of a node and `process` its process, `actions` decides what has to be done;
`cluster_plan` does so for a whole cluster, `disruption` lists the jobs that a run would end, and `departure` the nodes
that the inventory has no more.
"""
