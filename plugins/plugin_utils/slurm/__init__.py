# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm: asks it for hosts by a batch job, and makes an inventory of those that the job got."""
