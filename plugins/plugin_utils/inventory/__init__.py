# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: its checks before any host is touched, its ports, and the nodes that it describes.

`inventory` checks groups, names and variables, `port_inventory` its ports; `nodes` plans each Ray node.
"""
