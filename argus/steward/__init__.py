# SPDX-License-Identifier: GPL-3.0-or-later
"""The steward of a cluster: one process beside Ray's head that looks after all of its jobs."""
