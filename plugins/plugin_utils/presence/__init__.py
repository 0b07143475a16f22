# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the nodes of a cluster are there."""
