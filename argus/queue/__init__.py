# SPDX-License-Identifier: Apache-2.0
"""The queue of a cluster: the room for a job, the order in which jobs get it, and their attempts."""
