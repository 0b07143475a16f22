# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm: an allocation as an inventory, and the script that asks for one.

`text` reads what Slurm's commands print, `allocation` makes an inventory of it, `script` writes the batch script, and
`commands` runs Slurm's commands. `module_utils.slurm` has the programs of the steps.
"""
