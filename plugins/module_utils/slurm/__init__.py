# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that run in the steps of a Slurm job: `step` runs the commands that `relay` passes to it."""
