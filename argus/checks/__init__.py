# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that run on a worker.

Lives here: checks of the node, model, dataset, reward function, packages and disk space, and the order in which a
worker runs them (worker).
Called by: the gate, which starts them on the cluster, and staging, which checks datasets and models before they are
used.
"""
