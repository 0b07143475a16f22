# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a cluster, and what a node has there. `probe` reads a machine, on it, with Python 3.9."""
