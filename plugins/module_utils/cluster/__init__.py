# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a cluster, and what a node has there. What modules import runs on machines with Python 3.9."""
