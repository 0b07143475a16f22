# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm: an allocation as an inventory, the script that asks for one, and the step of it that runs commands.

`text` reads what Slurm's commands print, `allocation` makes an inventory of it, `script` writes the batch script,
`commands` runs Slurm's commands, and `step` and `relay` are the programs of its steps. Plugins of
the controller use it.
"""
