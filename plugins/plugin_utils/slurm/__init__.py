# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm: an allocation as an inventory, and the script that asks for one.

`text` reads what Slurm's commands print, `allocation` makes an inventory of it, `script` writes the batch script, and
`commands` runs Slurm's commands. `module_utils.slurm` has the programs of the steps.
"""
