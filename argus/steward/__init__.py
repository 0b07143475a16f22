# SPDX-License-Identifier: Apache-2.0
"""The steward of a cluster: one process beside Ray's head that looks after all of its jobs."""
