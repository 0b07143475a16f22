# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: its checks before any host is touched, its ports, and the nodes that it describes.

`inventory` checks groups, names and variables, `port_inventory` its ports; `nodes` plans each Ray node.
"""
