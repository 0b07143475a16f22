# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster: what the inventory requests, what machines have, and which nodes follow from both.

Lives here: checks of the inventory (inventory), the probe of a machine (machine, hardware, mounts, engine), checks of
a machine (preflight), the plan of the nodes (nodes) and whether Ray has them all (readiness).
Called by: machine_info, machine_state and ray_cluster_info, and the filters of cluster_up.yml and cluster_status.yml.
The probe runs on machines, with Python 3.9. Nothing here knows about jobs.
"""
