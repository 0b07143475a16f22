# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: its checks before any host is touched, its ports, and the nodes that it describes."""
