# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of a cluster: the room for a job, the order in which jobs get it, and their attempts."""
