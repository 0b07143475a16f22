# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a cluster, made on the controller from the inventory and the probed machines, and findings about it."""
