# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray's head and nodes: its HTTP API, functions run on nodes, and what the head remembers of nodes.

Ray itself is imported inside functions.
"""
