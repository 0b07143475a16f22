# SPDX-License-Identifier: Apache-2.0
"""Checks that run on a worker.

Lives here: checks of the node, model, dataset, reward function, packages and disk space, and the order in which a
worker runs them (worker).
Called by: the gate, which starts them on the cluster, and staging, which checks datasets and models before they are
used.
"""
