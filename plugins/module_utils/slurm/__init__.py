# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm: `step` and `relay` are the programs of the steps of an allocation, which run commands."""
