# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm: `allocation` makes an inventory of a job, `commands` runs Slurm's commands and writes the batch script."""
