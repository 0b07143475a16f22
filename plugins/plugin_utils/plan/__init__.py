# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a cluster, decided on the controller from the inventory and the probed machines.

`container` derives the container of a node and `process` its process, `actions` decides what has to be done;
`cluster_plan` does so for a whole cluster, `disruption` lists the jobs that a run would end, and `departure` the nodes
that the inventory has no more.
"""
