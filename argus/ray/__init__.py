# SPDX-License-Identifier: Apache-2.0
"""Ray's head and nodes: its HTTP API, functions run on nodes, and what the head remembers of nodes.

Ray itself is imported inside functions.
"""
