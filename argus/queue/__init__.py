# SPDX-License-Identifier: Apache-2.0
"""The queue of a cluster: the room for a job, the order in which jobs get it, and their attempts.

demand, room: what a job needs, and whether the cluster has it now. queue: whose turn it is. attempts: submits to Ray.
"""
