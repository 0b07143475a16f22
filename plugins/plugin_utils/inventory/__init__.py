# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: its machines, its checks before any host is touched, its ports, and the nodes that it describes."""
