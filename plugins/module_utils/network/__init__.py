# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads network interfaces and HCAs, and derives NCCL's and gloo's settings. Runs on machines, from Python 3.9."""
