# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads network interfaces, and derives the NCCL and Gloo settings of a node. Runs on Python 3.9, as all modules do."""
