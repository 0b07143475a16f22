# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a cluster, decided on the controller from the inventory and the probed machines."""
